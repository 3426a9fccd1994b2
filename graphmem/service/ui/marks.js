// Names and words of a question, where they stand in a text.

// Words of a question that say nothing about what is asked for.
const FUNCTION_WORDS = new Set(
  ("about after also been before both could does doing each ever from have here into just like many more most much only other over said same "
    + "shall should some such than that their them then there these they this those very were what when where which while whoever whom whose will "
    + "with would your 什么 怎么 怎样 哪里 哪儿 哪个 哪些 多少 为什么 可以 我们 你们 他们 她们 自己 这个 那个 一个 没有 时候 是否 有没有 如何").split(" "),
);
const MIN_LETTERS = 4;
const MIN_HAN = 2;

function escapePattern(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** Splits a text at names, where they stand exactly so: the parts at odd places are names. */
export function splitAtNames(text, names) {
  const found = names.filter((name) => name && text.includes(name)).sort((a, b) => b.length - a.length);
  return found.length ? text.split(new RegExp(`(${found.map(escapePattern).join("|")})`)) : [text];
}

function segments(text) {
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)];
}

/** Returns the words of a question that name something, in lower case. */
export function askedWords(question) {
  const words = segments(question).filter((one) => one.isWordLike).map((one) => one.segment.toLowerCase());
  const isLong = (word) => word.length >= (/\p{Script=Han}/u.test(word) ? MIN_HAN : MIN_LETTERS);
  return new Set(words.filter((word) => (isLong(word) || /\d/.test(word)) && !FUNCTION_WORDS.has(word)));
}

/** Splits a text at these words: the parts at odd places are words, those that only a space divides together. */
export function splitAtWords(text, words) {
  const found = segments(text).map((one) => one.segment);
  const isAsked = (place) => words.has(found[place]?.toLowerCase());
  const parts = [""];
  found.forEach((segment, place) => {
    const belongs = isAsked(place) || (segment === " " && isAsked(place - 1) && isAsked(place + 1));
    const isInWords = parts.length % 2 === 0;
    if (belongs !== isInWords) parts.push("");
    parts[parts.length - 1] += segment;
  });
  return parts;
}
