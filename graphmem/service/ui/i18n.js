// The words of the page, in English and Chinese, and dates and numbers as both write them.

import { language } from "./preferences.js";

// By key: English ("one|several" where a number decides), then Chinese. {name} is replaced.
const WORDS = {
  skip: ["Skip to content", "跳到内容"],
  views: ["Views", "视图"],
  memories: ["Memories", "记忆"],
  language: ["中文", "English"],
  theme: ["Light or dark", "浅色或深色"],
  sign_out: ["Sign out", "退出"],
  close: ["Close", "关闭"],
  try_again: ["Try again", "重试"],
  undo: ["Undo", "撤销"],
  copy: ["Copy", "复制"],
  copied: ["Copied.", "已复制。"],
  still_loading: ["Still loading…", "仍在加载……"],

  door_title: ["Open your memory", "打开你的记忆"],
  door_lead: ["See what is remembered about you, and set it right.", "看看 AI 记住了什么，并随时更正。"],
  key: ["Key", "密钥"],
  open: ["Open", "打开"],
  opening: ["Opening", "正在打开"],
  door_hint: ["Kept in this tab only; gone when you close it.", "只保存在这个标签页里，关闭即消失。"],
  door_none: ["No key? Ask whoever runs the service.", "没有密钥？请运行服务的人给你一把。"],
  key_wrong: ["This key opens nothing here.", "这把密钥打不开这里。"],
  key_lost: [
    "The key is not valid any more. Open with another one; what you wrote is still here.",
    "这把密钥已失效。请换一把打开，你写的内容还在。",
  ],
  key_metrics: ["This key is for metrics alone; it opens no memory.", "这把密钥只用于指标，打不开记忆。"],

  whose: ["Memory of", "记忆属于"],
  whose_choose: ["Memory of {name}. Choose another", "{name}的记忆，选择其他人"],
  everybody: ["Everybody", "所有人"],
  nobody: ["Choose a user", "选择用户"],
  you: ["You", "你"],
  user_typed: ["Open “{name}”", "打开“{name}”"],
  user_first: ["Choose whose memory to see.", "请先选择要看谁的记忆。"],
  user_first_do: ["The key is for several users; type the name of one.", "这把密钥可用于多个用户，请输入其中一个的名字。"],

  title: ["What is remembered of {name}", "{name}的记忆"],
  title_own: ["What is remembered of you", "关于你的记忆"],
  title_all: ["What is remembered of everybody", "所有人的记忆"],
  total: ["{n} memory|{n} memories", "{n} 条"],
  filter: ["Filter these memories", "筛选这些记忆"],
  filter_hint: ["Filter by words or names", "按词语或名字筛选"],
  filter_off: ["Take the filters off", "清除筛选"],
  kinds: ["Kinds", "种类"],
  kinds_usual: ["Facts and episodes", "事实与片段"],
  kinds_fact: ["Facts", "事实"],
  kinds_episode: ["Episodes", "片段"],
  kinds_summary: ["Summaries", "摘要"],
  kinds_all: ["Every kind", "全部种类"],
  day: ["Day", "日期"],
  fact: ["Fact", "事实"],
  episode: ["Episode", "片段"],
  summary: ["Summary", "摘要"],
  assistant: ["Assistant", "助手"],
  changed: ["changed", "改过"],
  shown: ["1 to {n} of {total}", "第 1–{n} 条，共 {total} 条"],
  matching: ["{n} found among the newest {among} of {total}", "在最新的 {among} 条（共 {total} 条）中找到 {n} 条"],
  older: ["Show older", "更早的"],
  older_search: ["Look through older", "继续查找更早的"],
  older_busy: ["Loading", "正在加载"],
  none: ["Nothing is remembered with these filters.", "没有符合筛选条件的记忆。"],
  none_do: ["Try fewer words, or take the filters off.", "试试更少的词，或清除筛选。"],
  not_loaded: ["The memories could not be loaded. {reason}", "无法加载记忆。{reason}"],
  no_answer: ["The service does not answer; check that it runs.", "服务没有应答，请检查它是否在运行。"],

  memory: ["One memory", "一条记忆"],
  neighbours: ["Neighbours", "相邻记忆"],
  newer: ["Newer memory (k)", "上一条 (k)"],
  older_one: ["Older memory (j)", "下一条 (j)"],
  close_panel: ["Close (Esc)", "关闭 (Esc)"],
  said: ["{who} said it on {when}", "{who}，说于{when}"],
  noted: ["Remembered on {when}", "记于{when}"],
  retired: ["No longer true since {when}", "自{when}起不再成立"],
  edit: ["Edit", "编辑"],
  words: ["Words of the memory", "记忆的内容"],
  save: ["Save", "保存"],
  saving: ["Saving", "正在保存"],
  keep: ["Keep as it was", "保持原样"],
  saved: ["Saved.", "已保存。"],
  not_saved: ["Not saved: {reason} Your text is still here.", "没能保存：{reason}你的文字还在。"],
  pending: ["kept; still being linked", "已保存，仍在建立关联"],
  drawn_from: ["Drawn from", "来自"],
  messages: ["{n} message|{n} messages", "{n} 条消息"],
  no_sources: ["None of the messages that it was drawn from is stored.", "来源消息均未保存。"],
  people: ["People and things", "人物与事物"],
  history: ["History", "历史"],
  changes: ["{n} change|{n} changes", "{n} 次变更"],
  ev_ADD: ["First remembered", "首次记住"],
  ev_UPDATE: ["Changed", "已更改"],
  ev_RETIRE: ["No longer true", "不再成立"],
  ev_RESTORE: ["True again", "重新成立"],
  ev_details: ["Details changed, the words stayed", "改了细节，文字未变"],
  undo_of: ["Undo: {what}, {when}", "撤销：{what}，{when}"],
  undone: ["Taken back.", "已撤销。"],
  undo_refused: ["Not undone: it was changed again since.", "未能撤销：此后又有改动。"],
  nothing_to_undo: ["There is nothing to undo on this page.", "此页没有可撤销的改动。"],
  no_memory: ["There is no such memory here.", "这里没有这条记忆。"],
  no_memory_do: ["It may have been erased, or it is someone else’s.", "它可能已被抹掉，或不属于当前用户。"],
  memory_failed: ["This memory could not be loaded. {reason}", "无法加载这条记忆。{reason}"],
  copy_id: ["Copy id", "复制 ID"],

  erase: ["Delete…", "删除…"],
  erase_ask: ["Delete this memory for good?", "彻底删除这条记忆？"],
  erase_with: ["With it go, and no undo brings them back:", "这些会一并消失，且无法撤销："],
  erase_messages: [
    "message that it was drawn from, if kept for it alone|messages that it was drawn from, as far as kept for it alone",
    "条来源消息（只为它保存的）",
  ],
  erase_changes: ["change in its history: the words|changes in its history: the words", "次历史变更中的文字"],
  erase_links: ["link to people and things|links to people and things", "条与人物、事物的关联"],
  erase_summaries: ["summaries drawn from these words", "由这些话得出的摘要"],
  erase_sure: [
    "Yes, erase these words everywhere. I know that this cannot be undone.",
    "是的，把这些话从所有地方抹掉。我知道此操作无法撤销。",
  ],
  erase_do: ["Erase for good", "彻底抹掉"],
  erase_busy: ["Erasing", "正在抹掉"],
  erase_first: ["Confirm above first", "请先勾选上面的确认"],
  erase_not: ["Keep it", "保留"],
  erased: ["Erased.", "已抹掉。"],
  erased_with: ["Erased, with {n} other memory.|Erased, with {n} other memories.", "已抹掉，包括另外 {n} 条记忆。"],
  not_erased: ["Not erased: {reason}", "没能抹掉：{reason}"],

  first_title: ["Nothing is remembered yet", "还没有任何记忆"],
  first_lead: [
    "Tell it something, or connect the chat you already use. Any of the three will do:",
    "告诉它一件事，或者把正在用的聊天软件接上来。三种方式任选其一：",
  ],
  first_rest: ["Tell it something", "告诉它一件事"],
  first_rest_do: ["From a terminal, with the whole key in place of its beginning.", "在终端运行，把密钥开头换成完整的密钥。"],
  first_mem0: ["From a program that uses mem0", "在使用 mem0 的程序里"],
  first_mem0_do: ["The client stays; its host changes.", "客户端不变，只改 host。"],
  first_chat: ["From a chat client", "在聊天软件里"],
  first_chat_do: [
    "Set the base URL and this key; memories are added to each chat.",
    "设置 base URL 和这把密钥，每次对话都会带上记忆。",
  ],
  first_wait: ["Waiting for the first memory", "正在等待第一条记忆"],
  first_look: ["Look again", "再看看"],

  keyboard: ["Keyboard", "键盘"],
  kb_filter: ["filter", "筛选"],
  kb_rows: ["next, previous memory", "下一条、上一条"],
  kb_open: ["open", "打开"],
  kb_close: ["close", "关闭"],
  kb_edit: ["edit", "编辑"],
  kb_save: ["save", "保存"],
  kb_undo: ["undo the last change of this page", "撤销此页最近的改动"],
  kb_delete: ["ask about deleting", "询问是否删除"],
  kb_views: ["memories", "记忆"],
  kb_help: ["this list", "此列表"],
  kb_letters: ["Single letters are commands", "启用单键命令"],
  typed: ["Type to choose", "输入以筛选"],
};

export const TYPES = {
  Person: ["Person", "人物"],
  Organization: ["Organization", "组织"],
  Place: ["Place", "地点"],
  Event: ["Event", "事件"],
  Object: ["Thing", "物品"],
  Concept: ["Idea", "概念"],
  Time: ["Time", "时间"],
  Other: ["Other", "其他"],
};

const index = () => (language() === "zh" ? 1 : 0);
const locale = () => (language() === "zh" ? "zh-CN" : "en-GB");

function pattern(key, n) {
  const [one, several = one] = WORDS[key][index()].split("|");
  return n === 1 ? one : several;
}

/** Returns the words of a key. `values.n`, a number, chooses between one and several. */
export function t(key, values = {}) {
  return pattern(key, values.n).replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? number(values[name]) : values[name],
  );
}

/** Returns the words of a key as a list, with nodes in place of {name}. */
export function nodes(key, values) {
  return pattern(key).split(/\{(\w+)\}/).map((part, place) => (place % 2 ? values[part] : part));
}

/** Returns the name of an entity type. */
export function typeName(type) {
  return (TYPES[type] ?? TYPES.Other)[index()];
}

/** Returns a number as the language writes it. */
export function number(n) {
  return new Intl.NumberFormat(locale()).format(n);
}

function format(date, options) {
  return new Intl.DateTimeFormat(locale(), options).format(date);
}

/** Returns the time of day, such as 20:41. */
export function time(iso) {
  return format(new Date(iso), { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

/** Returns the day, with the year unless it is this year's and `short`. */
export function day(iso, { short = false } = {}) {
  const date = new Date(iso);
  const year = short && date.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return format(date, { day: "numeric", month: "long", ...year });
}

/** Returns the day of the week. */
export function weekday(iso) {
  return format(new Date(iso), { weekday: "long" });
}

/** Returns day and time, such as "2 June 2025, 20:41". */
export function moment(iso) {
  return `${day(iso)}${index() ? " " : ", "}${time(iso)}`;
}

/** Returns the time in UTC, for titles. */
export function utc(iso) {
  return `${new Date(iso).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** Returns the day as YYYY-MM-DD, in local time. */
export function localDay(iso) {
  const date = new Date(iso);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Returns the language of a text for its element: Chinese if it has Han characters and no kana, otherwise unknown. */
export function languageOf(text) {
  if (/[\u3040-\u30ff]/.test(text)) return "ja";
  return /\p{Script=Han}/u.test(text) ? "zh-CN" : "";
}

/** Returns the reason of a failed request as a sentence. */
export function reasonOf(error) {
  if (error.status === undefined) throw error; // a fault of the page
  return error.detail || t("no_answer");
}
