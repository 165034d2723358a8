/** The widget's side in a notebook (an anywidget front-end module): it holds the viewer's frame, and passes messages between it and Python. */
const VIEW = ['head', 'lens', 'pins', 'range']

/** Bytes of a message's buffer, in memory of their own. */
const copy = ({ buffer, byteOffset, byteLength }) => buffer.slice(byteOffset, byteOffset + byteLength)

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
    if (message.id === 0) frame.srcdoc = new TextDecoder().decode(bytes)
    else send({ id: message.id, bytes }, bytes ? [bytes] : [])
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
  el.append(frame)
  ask(0, '/page')
  return () => {
    removeEventListener('message', listen)
    model.off('msg:custom', answer)
    for (const key of VIEW) model.off(`change:${key}`, show)
  }
}

export default { render }
