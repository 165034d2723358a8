/** The widget's side in a notebook (an anywidget front-end module): it holds the viewer's frame, and passes messages between it and Python. */
const VIEW = ['head', 'lens', 'pins', 'range']
/** After this time without an answer, the text below the picture of all heads tells how to get the viewer. */
const PATIENCE_MS = 5000

/** Bytes of a message's buffer, in memory of their own. */
const copy = ({ buffer, byteOffset, byteLength }) => buffer.slice(byteOffset, byteOffset + byteLength)

/** The theme of the notebook, by what is behind the output: dark if it is darker than middle grey. marimo has outputs in shadow trees. */
function themeBehind(element) {
  const pixel = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true })
  for (let at = element; at; at = at.parentElement ?? at.getRootNode().host) {
    pixel.clearRect(0, 0, 1, 1)
    pixel.fillStyle = getComputedStyle(at).backgroundColor
    pixel.fillRect(0, 0, 1, 1)
    const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data
    if (alpha > 128) return 0.3 * red + 0.6 * green + 0.1 * blue < 128 ? 'dark' : 'light'
  }
  return ''
}

function render({ model, el }) {
  const frame = document.createElement('iframe')
  frame.title = 'Headscope'
  frame.sandbox = 'allow-scripts allow-downloads'
  frame.style.cssText = `border: 0; width: 100%; height: ${model.get('height')}px`
  const send = (message, bytes = []) => frame.contentWindow?.postMessage(message, '*', bytes)
  const view = () => Object.fromEntries(VIEW.map((name) => [name, model.get(name)]))
  // Several views of one widget share its model, so each numbers its questions under a name of its own.
  const name = crypto.randomUUID?.() ?? String(Math.random())

  const answer = (message, buffers = []) => {
    if (message.to !== name) return
    const [bytes] = buffers.map(copy)
    if (message.id === 0) open(bytes)
    else send({ id: message.id, bytes }, bytes ? [bytes] : [])
  }
  const open = (bytes) => {
    frame.srcdoc = new TextDecoder().decode(bytes)
    el.replaceChildren(frame)
  }
  const ask = (id, path) => model.send({ from: name, id, path })
  const listen = ({ source, data }) => {
    if (source !== frame.contentWindow) return
    if (data.path) ask(data.id, data.path)
    if (!data.view) return
    telling = true
    for (const key of VIEW) model.set(key, data.view[key])
    telling = false
    model.save_changes()
  }
  let telling = false
  const show = () => telling || send({ view: view() })

  addEventListener('message', listen)
  model.on('msg:custom', answer)
  for (const key of VIEW) model.on(`change:${key}`, show)
  // There at once, and all there is where no kernel answers, as in an exported notebook. Python has escaped the names in it, and this module comes from the
  // same state of the widget: a state that was tampered with could replace this code as well.
  el.innerHTML = model.get('still')
  const about = el.querySelector('figcaption')
  about.hidden = true
  setTimeout(() => (about.hidden = false), PATIENCE_MS)
  ask(0, `/page/${themeBehind(el)}`)
  return () => {
    removeEventListener('message', listen)
    model.off('msg:custom', answer)
    for (const key of VIEW) model.off(`change:${key}`, show)
  }
}

export default { render }
