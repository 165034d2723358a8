/** Every key and gesture of the page, and the words it uses. */
export interface HelpPart {
  title: string
  lines: readonly (readonly [term: string, meaning: string])[]
}

const WORDS: HelpPart = {
  title: 'Words',
  lines: [
    ['head 4.5', 'layer 4, head 5, both counted from 0'],
    ['query, key', 'the token that looks, the token it looks at'],
    ['token', 'a word or a piece of one, as the model reads it'],
    ['weight', 'the share of a query\u2019s look that goes to a key; a row sums to 1'],
    ['[CLS], [SEP]', 'special tokens: the model\u2019s own, at the ends of a text'],
    ['sink', 'a token on which heads put weight that they have no use for'],
    ['lens', 'how the attention is read; the model runs the same under every lens'],
    ['effective', 'the part of the weights that reaches the output; not a distribution, and of one head only'],
    ['mechanism', 'how the model attends; another mechanism changes the run'],
    ['measure', 'numbers computed from maps, such as the entropy'],
  ],
}

export const ABOUT_A_TEXT: readonly HelpPart[] = [
  {
    title: 'Anywhere',
    lines: [
      ['/', 'to the text; Enter analyses it, Shift+Enter starts a line'],
      ['f', 'to the box that finds heads'],
      ['\u2190 \u2191 \u2192 \u2193', 'another head; with Shift several'],
      ['[  ]', 'the lens before, the lens after'],
      ['c', 'compare: off, side by side, difference'],
      ['h', 'history of what was analysed'],
      ['e', 'one example for each lens'],
      ['Ctrl+Z', 'the choice before; Ctrl+Shift+Z the one after'],
      ['Escape', 'cancel what runs, else let go of what is pinned'],
      ['?', 'this sheet'],
    ],
  },
  {
    title: 'In a figure that Tab has reached',
    lines: [
      ['\u2190 \u2191 \u2192 \u2193', 'heads, cells, tokens, patches; Home and End: the ends of a row'],
      ['Enter', 'pins it, or opens the head; with Shift one more'],
      ['Shift+\u2190\u2192', 'selects several cells of a heat map'],
      ['+  \u2212  0', 'zooms a heat map in and out, and back to the whole'],
    ],
  },
  {
    title: 'By hand',
    lines: [
      ['point', 'lights a token\u2019s row, column, curves, and itself in the text'],
      ['click', 'pins it; click again to let go; with Shift one more'],
      ['drag', 'selects cells or tokens; moves a zoomed map'],
      ['double click', 'zooms into a heat map; Ctrl+wheel zooms in and out'],
      ['drop, paste', 'a text file or an image, anywhere on the page'],
    ],
  },
  WORDS,
]

export const ABOUT_STUDIES: readonly HelpPart[] = [
  {
    title: 'Anywhere',
    lines: [
      ['/', 'to the field that finds a study, where there are many'],
      ['n', 'a new study'],
      ['f', 'to the field that finds heads of the study'],
      ['[  ]', 'the lens before, the lens after'],
      ['Escape', 'out of a field'],
      ['?', 'this sheet'],
    ],
  },
  {
    title: 'In the grid of heads',
    lines: [
      ['\u2190 \u2191 \u2192 \u2193', 'another head; Home and End: the ends of a row'],
      ['Enter', 'opens it'],
    ],
  },
  {
    title: 'By hand',
    lines: [
      ['click', 'on a mark of a figure: its head, and the texts behind it'],
      ['point', 'on a mark: its numbers; on a name: what it means'],
      ['drop', 'a data set, where a new study asks for one'],
    ],
  },
  {
    title: 'Words of studies',
    lines: [
      ['input', 'one row of the data set: a text, or two'],
      ['study', 'all inputs through one model or two variants of it, kept as numbers of heads'],
      ['variant', 'a model under a mechanism; a study has one or two'],
      ['95 %', 'the interval in which the mean over inputs lies, by resampling the inputs'],
      ['left out', 'rows that could not be read, and inputs that the model does not take'],
    ],
  },
  WORDS,
]
