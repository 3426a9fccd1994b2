// Differences between two texts, by words.

// More pairs of words than this are not compared: the whole text counts as replaced.
const MAX_PAIRS = 4_000_000;

function words(text) {
  if (!Intl.Segmenter) return text.match(/\s+|\p{L}+|\p{N}+|[^]/gu) ?? [];
  return Array.from(new Intl.Segmenter(undefined, { granularity: "word" }).segment(text), (part) => part.segment);
}

/** Returns the parts of both texts in order, as [kind, text]; kind is "same", "del" or "ins". */
export function diffWords(before, after) {
  const [a, b] = [words(before), words(after)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const parts = [["same", a.slice(0, start).join("")]];
  parts.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)));
  parts.push(["same", a.slice(a.length - end).join("")]);
  return joined(parts);
}

function middle(a, b) {
  if (a.length * b.length > MAX_PAIRS) return [["del", a.join("")], ["ins", b.join("")]];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width); // lengths of the longest common subsequences of the rests
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const skip = Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : skip;
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) parts.push(["same", a[(i += 1, j += 1, i - 1)]]);
    else if (j === b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      parts.push(["del", a[i]]);
      i += 1;
    } else {
      parts.push(["ins", b[j]]);
      j += 1;
    }
  }
  return parts;
}

function joined(parts) {
  const result = [];
  for (const [kind, text] of parts) {
    if (!text) continue;
    if (result.at(-1)?.[0] === kind) result.at(-1)[1] += text;
    else result.push([kind, text]);
  }
  return result;
}
