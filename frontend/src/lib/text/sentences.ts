/** Sentences that the find box understands, one for each kind. */
export const SENTENCES = [
  'heads that ignore [SEP]',
  'attention to punctuation over 30 %',
  'the 3 sharpest heads in the last two layers',
  'local heads that are not vertical',
  'how many heads are vertical?',
  'open the best previous-token head',
  'open the head that looks most at [SEP]',
  'heads like L2H9',
  'compare head 3.1 and 4.5',
  'strongest edge in head 4.5',
  'difference between weights and effective attention',
  'plot entropy by layer',
  'what does null share mean?',
] as const
