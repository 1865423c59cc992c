// winnow tokenize: converts text, or a chat, to token ids.
#include <fmt/ranges.h>

#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "checkpoint/json_text.h"
#include "tokenizer/chat_prompt.h"
#include "tokenizer/chat_roles.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model;
  bool no_special = false;
  std::string messages;
  std::string tools;
  bool render = false;
};

// The input of a chat template.
struct Chat {
  winnow::Conversation conversation;
  bool add_generation_prompt = true;
  ordered_json variables = ordered_json::object();
};

ordered_json read_json(const std::string& file) {
  ordered_json value = json_or_discarded<ordered_json>(read_file(file));
  require(!value.is_discarded(), "{}: not valid JSON", file);
  return value;
}

// The template variables of a request. Those in chat_template_kwargs take precedence over keys
// next to its messages, as in the server.
ordered_json variables_of(const ordered_json& request, const std::string& file) {
  ordered_json variables = request;
  variables.erase("messages");
  variables.erase("add_generation_prompt");
  for (const char* group : {"variables", "chat_template_kwargs"}) {
    if (const auto found = request.find(group); found != request.end() && !found->is_null()) {
      require(found->is_object(), "{}: {}: expected an object", file, group);
      variables.update(*found);
    }
    variables.erase(group);
  }
  return variables;
}

Chat read_chat(const TokenizeOptions& options) {
  const std::string& file = options.messages;
  ordered_json request = read_json(file);
  Chat chat;
  if (request.is_object()) {
    chat.variables = variables_of(request, file);
    const ordered_json adds = request.value("add_generation_prompt", ordered_json(true));
    require(adds.is_boolean(), "{}: add_generation_prompt: expected true or false", file);
    chat.add_generation_prompt = adds.get<bool>();
    request = request.value("messages", ordered_json());
  }
  require(request.is_array(), "{}: expected a list of messages, or an object that has one", file);
  for (const ordered_json& message : request) {
    require(message.is_object(), "{}: expected messages that are objects", file);
  }
  chat.conversation.messages = std::move(request);
  if (!options.tools.empty()) {
    chat.variables["tools"] = read_json(options.tools);
    require(chat.variables["tools"].is_array(), "{}: expected a list of tools", options.tools);
  }
  return chat;
}

int tokenize_chat(const TokenizeOptions& options) {
  const auto chat_template = ChatTemplate::load(options.model);
  require(chat_template.has_value(), "{}: this model has no chat template", options.model);
  const Chat chat = read_chat(options);
  require_roles(chat.conversation.messages, *chat_template, chat.variables);
  if (options.render) {
    print(chat_template->render(chat.conversation.messages, chat.add_generation_prompt,
                                chat.variables));
    return kSuccess;
  }
  const auto tokenizer = load_tokenizer(options.model);
  const auto ids = encode_chat(chat.conversation, chat.add_generation_prompt, *chat_template,
                               *tokenizer, chat.variables);
  print(fmt::format("{}\n", fmt::join(ids, " ")));
  return kSuccess;
}

int run_tokenize(const TokenizeOptions& options) {
  if (!options.messages.empty()) {
    return tokenize_chat(options);
  }
  const auto tokenizer = load_tokenizer(options.model);
  const std::string text = read_standard_input();
  require_utf8("standard input", text);
  const auto ids =
      tokenizer->encode(text, {.add_special = !options.no_special, .parse_special = true});
  print(fmt::format("{}\n", fmt::join(ids, " ")));
  return kSuccess;
}

}  // namespace

void add_tokenize(CLI::App& app, Run& run) {
  std::shared_ptr<TokenizeOptions> options;
  CLI::App* command =
      add_command(app, run, "tokenize",
                  "Reads text from standard input, or a chat from a file, and prints its token "
                  "ids, separated by spaces",
                  options, run_tokenize);
  const FlagGroup own(*command);
  add_model_flag(own, options->model)->required();
  CLI::Option* no_special =
      own.flag("--no-special", options->no_special,
               "Omit BOS and other tokens that the model adds (default: off)");
  CLI::Option* messages = own.open_option(
      "--messages", options->messages, "FILE",
      "Tokenise a chat with the chat template: a JSON list of messages, or an object with "
      "messages, tools and other template variables; - is standard input (default: none)");
  messages->excludes(no_special);
  own.open_option("--tools", options->tools, "FILE",
                  "A JSON list of tools for the template (default: those of the object)")
      ->needs(messages);
  own.flag("--render", options->render,
           "Print the prompt as text instead of its ids (default: off)")
      ->needs(messages);
}

}  // namespace winnow::cli
