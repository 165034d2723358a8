/** Where the papers are that declarations cite. Those without an entry are named without a link. */

/** As they are cited: authors and year. */
const PAPERS: Readonly<Record<string, string>> = {
  'Abnar & Zuidema 2020': 'https://arxiv.org/abs/2005.00928',
  'Björck & Golub 1973': 'https://doi.org/10.1090/S0025-5718-1973-0348991-3',
  'Brunner et al. 2020': 'https://arxiv.org/abs/1908.04211',
  'Clark et al. 2019': 'https://arxiv.org/abs/1906.04341',
  'Cordonnier, Loukas & Jaggi 2020': 'https://arxiv.org/abs/2006.16362',
  'Dong, Cordonnier & Loukas 2021': 'https://arxiv.org/abs/2103.03404',
  'Ferrando et al. 2022': 'https://arxiv.org/abs/2203.04212',
  'Gu et al. 2025': 'https://arxiv.org/abs/2410.10781',
  'Hintze & Nelson 1998': 'https://doi.org/10.1080/00031305.1998.10480559',
  'Jaynes 1957': 'https://doi.org/10.1103/PhysRev.106.620',
  'Kobayashi et al. 2020': 'https://arxiv.org/abs/2004.10102',
  'Kobayashi et al. 2021': 'https://arxiv.org/abs/2109.07152',
  'Kovaleva et al. 2019': 'https://arxiv.org/abs/1908.08593',
  'Masumura & Taki 2025': 'https://arxiv.org/abs/2511.20698',
  'Michel et al. 2019': 'https://arxiv.org/abs/1905.10650',
  'Mohebbi et al. 2023': 'https://arxiv.org/abs/2301.12971',
  'Olsson et al. 2022': 'https://arxiv.org/abs/2209.11895',
  'Peng et al. 2020': 'https://arxiv.org/abs/2005.06537',
  'Rudelson & Vershynin 2007': 'https://doi.org/10.1145/1255443.1255449',
  'Shannon 1948': 'https://doi.org/10.1002/j.1538-7305.1948.tb01338.x',
  'Sun & Marasović 2021': 'https://arxiv.org/abs/2105.08855',
  'Tamkin, Jurafsky & Goodman 2020': 'https://arxiv.org/abs/2011.04823',
  'Vaswani et al. 2017': 'https://arxiv.org/abs/1706.03762',
  'Voita et al. 2019': 'https://arxiv.org/abs/1905.09418',
  'Yang et al. 2020': 'https://arxiv.org/abs/2006.03265',
  'Yang et al. 2023': 'https://arxiv.org/abs/2210.04382',
}
const CITED = new RegExp(`(${Object.keys(PAPERS).join('|')})`)

interface CitationPart {
  text: string
  /** Empty without a link. */
  url: string
}

/** The parts of a citation, with links to the papers that it names. */
export const linkPapers = (citation: string): CitationPart[] =>
  citation
    .split(CITED)
    .filter(Boolean)
    .map((text) => ({ text, url: PAPERS[text] ?? '' }))
