// Words of the chain that a path is drawn as: by key, English ("one|several" where a number decides), then Chinese. {name} is replaced.

export default {
  path: ["The path, in order", "路径，按顺序"],
  path_start: ["Starts here", "起点"],
  path_answer: ["The answer", "答案"],
  path_found: ["Found", "找到"],
  path_next: ["next in the conversation", "对话中的下一句"],
  path_previous: ["just before in the conversation", "对话中的上一句"],
};
