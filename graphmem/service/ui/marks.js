// Names, and words of a question, where they stand in a text.

// Words of a question that say nothing about what is asked for, of four letters or more.
const FUNCTION_WORDS = new Set(
  ("about after also been before both could does doing each ever from have here into just like many more most much only other over said same "
    + "shall should some such than that their them then there these they this those very were what when where which while whoever whom whose will "
    + "with would your").split(" "),
);
const MIN_LETTERS = 4;
// Between Chinese words stand no spaces: two characters count as a word, without those of this kind.
const HAN_FUNCTION_WORDS = /[的了是在吗呢吧我你他她它们这那哪什么怎谁]|可以|多少|没有|有没|时候|一个|因为|所以|如何/;
const RUNS = /[\u3400-\u9fff]+|(?:(?![\u3400-\u9fff])[\p{L}\p{M}\p{N}])+/gu;

function escapePattern(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** Splits a text at names, where they stand exactly so: the parts at odd places are names. */
export function splitAtNames(text, names) {
  const found = names.filter((name) => name && text.includes(name)).sort((a, b) => b.length - a.length);
  return found.length ? text.split(new RegExp(`(${found.map(escapePattern).join("|")})`)) : [text];
}

/** Returns the words of a text in lower case, and its pairs of Chinese characters, each as {word, at, length, isName}. */
function wordsOf(text) {
  return [...text.matchAll(RUNS)].flatMap(({ 0: run, index }) => {
    if (!/^[\u3400-\u9fff]/.test(run)) {
      return [{ word: run.toLowerCase(), at: index, length: run.length, isName: index > 0 && /^\p{Lu}\p{L}/u.test(run) }];
    }
    return Array.from({ length: run.length - 1 }, (_, place) => ({ word: run.slice(place, place + 2), at: index + place, length: 2, isName: true }));
  });
}

/** Returns the words of a question that say what is asked for, in lower case: long ones, numbers and parts of names. */
export function askedWords(question) {
  const found = wordsOf(question).filter(({ word, isName }) => isName || word.length >= MIN_LETTERS || /\d/.test(word));
  return new Set(found.map(({ word }) => word).filter((word) => !FUNCTION_WORDS.has(word) && !HAN_FUNCTION_WORDS.test(word)));
}

/** Splits a text at these words: the parts at odd places are words, those that only a space divides together. */
export function splitAtWords(text, words) {
  const parts = [];
  let [end, before] = [0, 0]; // of the last part, and of the text before it
  for (const { at, length } of wordsOf(text).filter(({ word }) => words.has(word))) {
    const isBesides = parts.length > 0 && (at <= end || text.slice(end, at) === " ");
    if (isBesides) parts[parts.length - 1] = text.slice(before, at + length);
    else {
      parts.push(text.slice(end, at), text.slice(at, at + length));
      before = at;
    }
    end = at + length;
  }
  return [...parts, text.slice(end)];
}
