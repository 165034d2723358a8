/** The colours of canvases, read from the style sheet so that they are defined once. */
import { type ColourTable, divergingTable, type Ramp, sequentialTable } from '../maths/colour'

export interface Palette {
  paper: string
  ink: string
  muted: string
  line: string
  accent: string
  more: string
  less: string
  sequential: ColourTable
  diverging: ColourTable
}

export function readPalette(element: Element): Palette {
  const styles = getComputedStyle(element)
  const read = (name: string) => styles.getPropertyValue(`--${name}`).trim()
  const ramp: Ramp = {
    zero: read('paper'),
    more: [read('more'), read('more-end')],
    less: [read('less'), read('less-end')],
  }
  return {
    paper: ramp.zero,
    ink: read('ink'),
    muted: read('muted'),
    line: read('line'),
    accent: read('accent'),
    more: ramp.more[0],
    less: ramp.less[0],
    sequential: sequentialTable(ramp),
    diverging: divergingTable(ramp),
  }
}

export const tableFor = (palette: Palette, signed: boolean) => (signed ? palette.diverging : palette.sequential)

export const MONO = "12px ui-monospace, 'SF Mono', 'Cascadia Mono', 'Noto Sans Mono', 'DejaVu Sans Mono', monospace"
