/** Read what an exported page keeps of a head: its factors, with the errors that follow from their rounding. */
import {
  type Bias,
  type Factors,
  projectionFactors,
  remainder,
  type Vectors,
  type Visible,
  weightFactors,
  wholeMap,
} from '../lib/maths/factors'
import type { Errors } from '../lib/maths/matrix'
import { readMetadata, readSafetensors, type Tensor, tensor } from '../lib/net/safetensors'

interface Described {
  kind: string
  scaling: number
  softcap: number | null
  causal: boolean
  visible: { rule: Visible['rule'] }
  bias: { by: Bias['by'] } | null
  whole: Described
  part: Described
}

/** Factors, the largest error of an entry, and what rounding adds up to in a row, if that is known. */
export interface Kept extends Errors {
  factors: Factors
}

export function readFactors(buffer: ArrayBuffer): Kept {
  const tensors = readSafetensors(buffer)
  const [error, rowError] = tensor(tensors, 'error').data
  return { factors: build(JSON.parse(readMetadata(buffer).head), '', tensors), error, rowError }
}

const floats = (found: Tensor) => Float32Array.from(found.data)

/** Numbers that are multiples of a scale of their column, or as they are. */
function vectors(tensors: Map<string, Tensor>, name: string): Vectors {
  const found = tensor(tensors, name)
  const [data, width] = [floats(found), found.shape[2]]
  const scale = tensors.get(`${name}.scale`)?.data
  if (scale) for (let i = 0; i < data.length; i++) data[i] *= scale[i % width]
  return { data, width }
}

function build(head: Described, prefix: string, tensors: Map<string, Tensor>): Factors {
  const named = (name: string) => tensor(tensors, prefix + name)
  const some = (name: string) => tensors.get(prefix + name)?.data
  switch (head.kind) {
    case 'map':
      return wholeMap(floats(named('map')), named('map').shape[2])
    case 'weights':
      return weightFactors({
        query: vectors(tensors, `${prefix}query`),
        key: vectors(tensors, `${prefix}key`),
        lse: floats(named('lse')),
        scaling: head.scaling,
        softcap: head.softcap,
        visible: visible(head.visible.rule, some('visible.begin'), some('visible.end'), some('visible.mask')),
        bias: head.bias && { by: head.bias.by, values: floats(named('bias.values')) },
      })
    case 'projection':
      return projectionFactors({
        coefficients: vectors(tensors, `${prefix}coefficients`),
        basis: vectors(tensors, `${prefix}basis`),
        first: floats(named('first')),
        causal: head.causal,
      })
    case 'remainder':
      return remainder(build(head.whole, `${prefix}whole.`, tensors), build(head.part, `${prefix}part.`, tensors))
    default:
      throw new Error(`factors: ${head.kind} is not read here`)
  }
}

type Numbers = Tensor['data'] | undefined

const visible = (rule: Visible['rule'], begin: Numbers, end: Numbers, mask: Numbers): Visible => ({
  rule,
  ...(begin && end ? { begin, end } : {}),
  ...(mask ? { mask } : {}),
})
