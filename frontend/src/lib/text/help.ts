/** Every key and gesture of the page, and the words it uses. */
export interface HelpPart {
  title: string
  lines: readonly (readonly [term: string, meaning: string])[]
}

const WORDS: HelpPart = {
  title: 'Terms',
  lines: [
    ['head 4.5', 'layer 4, head 5, both counted from 0'],
    ['query, key', 'the token that attends, the token it attends to'],
    ['token', 'a word or a piece of one, as the model reads it'],
    ['weight', 'the share of a query\u2019s attention that goes to a key; rows sum to 1'],
    ['[CLS], [SEP]', 'special tokens, which the model adds around a text'],
    ['sink', 'a token that collects attention that heads do not need elsewhere'],
    ['lens', 'a way to read the attention; the model runs the same under every lens'],
    ['effective', 'the part of the weights that affects the head\u2019s output; not a distribution'],
    ['mechanism', 'how the model computes attention; another one changes the results'],
    ['measure', 'numbers computed from maps, such as the entropy'],
  ],
}

export const ABOUT_A_TEXT: readonly HelpPart[] = [
  {
    title: 'Anywhere',
    lines: [
      ['/', 'go to the text; Enter analyses it, Shift+Enter adds a line'],
      ['f', 'find heads by a query or a sentence, such as heads that ignore [SEP]'],
      ['l', 'list heads like the open one'],
      ['\u2190 \u2191 \u2192 \u2193', 'another head; with Shift, select several'],
      ['m', 'selected heads: one small map each, or merged'],
      ['s  n', 'star the open head, write a note on it'],
      ['o', 'sessions: save, open, export'],
      ['p', 'what the model predicts, and what heads do to it'],
      ['x', 'with predictions open: switch the open head off, or on again'],
      ['[  ]', 'previous lens, next lens'],
      ['c', 'compare: off, side by side, difference'],
      ['v', 'versus: compare with another head; Shift with a click or arrow chooses it'],
      ['.', 'show only the open head; Escape shows the rest again'],
      ['h', 'history of analyses'],
      ['e', 'tour of the lenses'],
      ['Ctrl+Z', 'undo; Ctrl+Shift+Z redo'],
      ['Escape', 'cancel the run, or unpin'],
      ['?', 'this help'],
    ],
  },
  {
    title: 'In a focused figure (Tab)',
    lines: [
      ['\u2190 \u2191 \u2192 \u2193', 'move between heads, cells, tokens or patches; Home and End: ends of a row'],
      ['Enter', 'pin, or open the head; with Shift, add one; on a cell of sentences, show its tokens'],
      ['Shift+\u2190\u2192', 'select several cells of a heat map'],
      ['x', 'mask the focused token, or unmask it'],
      ['+  \u2212  0', 'zoom a heat map in, out, or to the whole'],
    ],
  },
  {
    title: 'Mouse and touch',
    lines: [
      ['point', 'highlight a token with its row, column and curves; a cell names its tokens and value'],
      ['click', 'pin; click again to unpin; with Shift, add one'],
      ['drag', 'select cells or tokens; move a zoomed map, or the frame in its overview'],
      ['double click', 'zoom into a heat map, or show the tokens of a cell of sentences; Ctrl+wheel zooms'],
      ['drop, paste', 'a text file or an image, anywhere on the page'],
    ],
  },
  WORDS,
]

export const ABOUT_STUDIES: readonly HelpPart[] = [
  {
    title: 'Anywhere',
    lines: [
      ['/', 'find a study in a long list'],
      ['n', 'new study'],
      ['f', 'find heads of the study'],
      ['[  ]', 'previous lens, next lens'],
      ['Escape', 'leave a field'],
      ['?', 'this help'],
    ],
  },
  {
    title: 'In the grid of heads',
    lines: [
      ['\u2190 \u2191 \u2192 \u2193', 'another head; Home and End: ends of a row'],
      ['Enter', 'open it'],
    ],
  },
  {
    title: 'Mouse and touch',
    lines: [
      ['click', 'on a mark in a figure: open its head and example texts'],
      ['point', 'on a mark: its values; on a name: its definition'],
      ['drop', 'a data set, on the form of a new study'],
    ],
  },
  {
    title: 'Terms of studies',
    lines: [
      ['input', 'one row of the data set: a text, or two'],
      ['study', 'one model, or two variants, run on all inputs and summarised per head'],
      ['variant', 'a model under a mechanism; a study has one or two'],
      ['95 %', '95 % confidence interval of the mean over inputs, by bootstrap'],
      ['left out', 'unreadable rows, and inputs that the model rejects'],
    ],
  },
  WORDS,
]
