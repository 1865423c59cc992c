// The table of fields.
#include <array>

#include "server/openai/field_table.h"

namespace winnow::server {
namespace {

constexpr auto kHonoured = Treatment::honoured;
constexpr auto kRefused = Treatment::refused;
constexpr auto kIgnored = Treatment::ignored;

constexpr std::uint8_t kText = 1;        // /v1/completions
constexpr std::uint8_t kChat = 2;        // /v1/chat/completions
constexpr std::uint8_t kBoth = 3;        // completions and chats
constexpr std::uint8_t kTokenize = 4;    // /tokenize
constexpr std::uint8_t kDetokenize = 8;  // /detokenize
constexpr std::uint8_t kMessages = kChat | kTokenize;
constexpr std::uint8_t kAnthropic = 16;   // /v1/messages
constexpr std::uint8_t kResponses = 32;   // /v1/responses
constexpr std::uint8_t kEmbeddings = 64;  // /v1/embeddings
constexpr std::uint8_t kRerank = 128;     // /v1/rerank

constexpr double kMostTokens = 1 << 24;
constexpr double kAnyInteger = 1 << 30;

constexpr FieldRule boolean(std::string_view name, std::uint8_t endpoints,
                            std::string_view fallback, std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::boolean,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule integer(std::string_view name, std::uint8_t endpoints, double lowest,
                            double highest, std::string_view fallback, std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::integer,
          .lowest = lowest,
          .highest = highest,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule number(std::string_view name, double lowest, double highest,
                           std::string_view fallback, std::string_view note) {
  return {.name = name,
          .endpoints = kBoth,
          .kind = FieldKind::number,
          .lowest = lowest,
          .highest = highest,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule number_of(std::string_view name, std::uint8_t endpoints, double lowest,
                              double highest, std::string_view fallback, std::string_view note) {
  FieldRule rule = number(name, lowest, highest, fallback, note);
  rule.endpoints = endpoints;
  return rule;
}
constexpr FieldRule any(std::string_view name, std::uint8_t endpoints, std::string_view takes,
                        std::string_view fallback, std::string_view note) {
  return {.name = name, .endpoints = endpoints, .takes = takes, .fallback = fallback, .note = note};
}
constexpr FieldRule text(std::string_view name, std::uint8_t endpoints, std::string_view fallback,
                         std::string_view note) {
  return {.name = name,
          .endpoints = endpoints,
          .kind = FieldKind::text,
          .fallback = fallback,
          .note = note};
}
constexpr FieldRule alias(std::string_view name, std::uint8_t endpoints,
                          std::string_view alias_of) {
  return {.name = name, .endpoints = endpoints, .alias_of = alias_of};
}
constexpr FieldRule refused(std::string_view name, std::uint8_t endpoints,
                            std::string_view neutral = {}, std::string_view note = {}) {
  return {.name = name,
          .endpoints = endpoints,
          .treatment = kRefused,
          .neutral = neutral,
          .note = note};
}
constexpr FieldRule ignored(std::string_view name, std::uint8_t endpoints,
                            std::string_view note = {}) {
  return {.name = name, .endpoints = endpoints, .treatment = kIgnored, .note = note};
}

constexpr std::array kRules{
    // What is asked.
    text("model", kBoth | kTokenize | kDetokenize, "any",
         "another name than the one served is 404"),
    any("messages", kChat, "messages", kRequired, "see below"),
    any("messages", kTokenize, "messages", "prompt", ""),
    any("prompt", kText, "a string, token ids, or up to 256 of these", kRequired,
        "each prompt takes n of --max-requests; all are accepted or none"),
    text("prompt", kTokenize, "messages", "one of the two is needed"),
    any("suffix", kText, "a string", "none",
        "fill-in-the-middle; refused where the model has no tokens for it"),
    boolean(
        "echo", kBoth, "false",
        "repeat the prompt before the answer; in chats the last message, if the answer continues "
        "it; with logprobs also returns those of the prompt, and max_tokens may be 0"),
    boolean("add_special_tokens", kBoth | kTokenize, "true; chats: false",
            "BOS and the like before a text; chat templates write their own"),
    boolean("add_generation_prompt", kMessages, "true", "the template starts an answer"),
    boolean("continue_final_message", kMessages, "false",
            "the answer continues the last message; needs add_generation_prompt = false"),
    any("chat_template_kwargs", kMessages, "up to 64 variables", "{}", "for the template"),
    text("chat_template", kMessages, "the model's",
         "refused unless the server has --trust-request-chat-template"),
    any("documents", kMessages, "objects", "none", "for the template"),
    any("tools", kMessages, "functions", "none", "see Tools"),
    any("tool_choice", kMessages, "auto, none, required, or a function", "auto", "see Tools"),
    boolean("parallel_tool_calls", kMessages, "true",
            "false: at most one call, where calls are constrained"),
    // What is thought.
    text("reasoning_effort", kMessages, "the template's",
         "none, minimal, low, medium, high or xhigh, for the template; see Reasoning"),
    boolean("enable_thinking", kMessages, "the template's", "for the template; see Reasoning"),
    integer("thinking_token_budget", kChat, 0, kMostTokens, "none",
            "tokens of a thought, which then ends; see Reasoning"),
    alias("thinking_budget", kChat, "thinking_token_budget"),
    alias("thinking_budget_tokens", kChat, "thinking_token_budget"),
    boolean("include_reasoning", kChat, "true", "false: thoughts are not told"),
    boolean("separate_reasoning", kChat, "true", "false: thoughts stay in the content"),
    text("reasoning_format", kChat, "auto", "none: as separate_reasoning = false"),
    // Which part of a prompt.
    integer("truncate_prompt_tokens", kBoth, -1, kMostTokens, "off",
            "keep only the last tokens of a prompt; -1: as many as fit into the context"),
    // How long.
    integer("max_tokens", kBoth, -1, kMostTokens, "16; chats: -1",
            "at least 1, but see echo; -1: the rest of the context; prompt and answer beyond the "
            "context are an error"),
    integer("max_completion_tokens", kBoth, -1, kMostTokens, "max_tokens",
            "takes precedence over max_tokens"),
    alias("max_new_tokens", kBoth, "max_tokens"),
    alias("n_predict", kBoth, "max_tokens"),
    integer("min_tokens", kBoth, 0, kMostTokens, "0",
            "no stop token or stop string ends the answer earlier"),
    alias("min_new_tokens", kBoth, "min_tokens"),
    any("stop", kBoth, "a string or up to 16", "none", "empty strings are ignored"),
    any("stop_token_ids", kBoth, "token ids", "none", "end the answer like the model's own"),
    boolean("include_stop_str_in_output", kBoth, "false", "keep the stop string in the text"),
    alias("no_stop_trim", kBoth, "include_stop_str_in_output"),
    boolean("ignore_eos", kBoth, "false",
            "the answer continues to max_tokens; no effect where a grammar ends it"),
    // How many.
    integer("n", kBoth, 1, 128, "1", "samples share the prompt's pages"),
    alias("n_cmpl", kBoth, "n"),
    integer("best_of", kBoth, 1, 128, "n",
            "generate this many and return the n with the highest mean log-probability; not with "
            "stream"),
    // Which tokens.
    number("temperature", 0.0, 100.0, "the model's; 1", "0: always the most likely token"),
    number("top_p", 0.0, 1.0, "the model's; 1", "0: only the most likely token"),
    integer("top_k", kBoth, -1, kAnyInteger, "the model's; off", "0, -1: off"),
    number("min_p", 0.0, 1.0, "the model's; 0", "relative to the most likely token's probability"),
    number("typical_p", 0.0, 1.0, "1", "locally typical sampling; before the others"),
    number("xtc_probability", 0.0, 1.0, "0", "XTC; after top_k, top_p and min_p"),
    number("xtc_threshold", 0.0, 1.0, "0.1", ""),
    integer("mirostat", kBoth, 0, 2, "0",
            "version of Mirostat; instead of top_k, top_p, min_p, typical_p and XTC"),
    number("mirostat_tau", 0.0, 1e3, "5", "surprise in bits"),
    number("mirostat_eta", 0.0, 1.0, "0.1", ""),
    number("repetition_penalty", 0.01, 100.0, "the model's; 1", "of tokens of prompt and answer"),
    alias("repeat_penalty", kBoth, "repetition_penalty"),
    integer("repeat_last_n", kBoth, -1, kAnyInteger, "-1",
            "tokens that the three penalties look at; -1: all, 0: none"),
    number("frequency_penalty", -2.0, 2.0, "0", "of the answer's tokens"),
    number("presence_penalty", -2.0, 2.0, "0", "of the answer's tokens"),
    number("dry_multiplier", 0.0, 1e4, "0", "DRY; 0: off"),
    number("dry_base", 1.0, 1e3, "1.75", ""),
    integer("dry_allowed_length", kBoth, 1, kAnyInteger, "2", ""),
    integer("dry_penalty_last_n", kBoth, -1, kAnyInteger, "-1", "-1: all tokens, 0: DRY is off"),
    any("dry_sequence_breakers", kBoth, "up to 64 strings", "\"\\n\", \":\", \"\\\"\", \"*\"",
        "looked for in tokens"),
    any("logit_bias", kBoth, "{\"ID\": BIAS} or [[ID or text, BIAS]]", "none",
        "-100 to 100; false: never"),
    any("allowed_token_ids", kBoth, "token ids", "all", "only these tokens are generated"),
    any("bad_words", kBoth, "up to 1,024 strings", "none",
        "never generated, as tokenised at the beginning of a text or after a space"),
    any("seed", kBoth, "any 64 bits", "random",
        "makes answers repeatable; fully so under --deterministic"),
    // What form.
    any("response_format", kBoth, "{\"type\": ...}", "text", "see Structured output"),
    any("structured_outputs", kBoth, "an object", "none", "as vLLM's; see Structured output"),
    any("guided_json", kBoth, "a JSON Schema", "none", ""),
    text("guided_regex", kBoth, "none", ""),
    any("guided_choice", kBoth, "strings", "none", ""),
    text("guided_grammar", kBoth, "none", "GBNF or Lark"),
    alias("grammar", kBoth, "guided_grammar"),
    alias("ebnf", kBoth, "guided_grammar"),
    alias("json_schema", kBoth, "guided_json"),
    alias("regex", kBoth, "guided_regex"),
    // What is told.
    boolean("stream", kBoth, "false", "server-sent events"),
    any("stream_options", kBoth, "an object", "none",
        "with stream alone: include_usage, continuous_usage_stats"),
    any("logprobs", kBoth, "0 to 20; chats: true", "none",
        "natural logarithms of the model's own distribution"),
    alias("n_probs", kText, "logprobs"),
    integer("top_logprobs", kChat, 0, 20, "0", "needs logprobs; always includes the chosen token"),
    integer("prompt_logprobs", kBoth, 0, 20, "none",
            "as in vLLM: each prompt token and this many alternatives"),
    boolean("skip_special_tokens", kBoth, "true", "false: keep them in the text"),
    boolean("spaces_between_special_tokens", kBoth, "true",
            "no effect: decoders here insert no spaces"),
    boolean("return_token_ids", kBoth, "false", "see below"),
    boolean("return_token_strs", kTokenize, "false", "each token's text, too"),
    any("tokens", kDetokenize, "token ids", kRequired, ""),
    integer("priority", kBoth, -kAnyInteger, kAnyInteger, "0",
            "waiting requests with lower numbers go first"),
    any("winnow_votes", kBoth, "{\"chains\": 1 to 128, \"by\": \"answer\" or \"text\"}", "none",
        "see Votes"),
    boolean("winnow_trace", kBoth, "false", "see The live cache"),

    // Of embeddings and rankings.
    text("model", kEmbeddings | kRerank, "any", "as above"),
    any("input", kEmbeddings, "a string, token ids, or up to 2048 of these", kRequired, ""),
    text("encoding_format", kEmbeddings, "float", "float or base64"),
    integer("dimensions", kEmbeddings, 1, kMostTokens, "all",
            "the first ones; for models that were trained to be cut so"),
    text("query", kRerank, kRequired, ""),
    any("documents", kRerank, "up to 1024 strings, or objects with text", kRequired, ""),
    integer("top_n", kRerank, 1, kMostTokens, "all", "the best ones alone"),
    boolean("return_documents", kRerank, "true", "false: their indices alone"),
    text("instruction", kRerank, "find passages that answer the query",
         "what makes a document a good one"),
    integer("priority", kEmbeddings | kRerank, -kAnyInteger, kAnyInteger, "0", "as above"),
    refused("truncate_prompt_tokens", kEmbeddings | kRerank),
    refused("max_chunks_per_doc", kRerank),
    refused("max_tokens_per_doc", kRerank),

    // Of OpenAI's Responses API.
    text("model", kResponses, "any", "as above"),
    any("input", kResponses, "a string, or items", kRequired,
        "messages, reasoning, function_call and function_call_output"),
    text("instructions", kResponses, "none", "come first, and are not kept"),
    text("previous_response_id", kResponses, "none", "its messages come before these"),
    boolean("store", kResponses, "true", "kept in memory, the oldest 64 MiB go first"),
    integer("max_output_tokens", kResponses, 1, kMostTokens, "the rest of the context", ""),
    number_of("temperature", kResponses, 0.0, 100.0, "the model's; 1", ""),
    number_of("top_p", kResponses, 0.0, 1.0, "the model's; 1", ""),
    integer("top_k", kResponses, -1, kAnyInteger, "the model's; off", ""),
    any("seed", kResponses, "any 64 bits", "random", ""),
    boolean("stream", kResponses, "false", "server-sent events, as OpenAI has them"),
    any("tools", kResponses, "functions", "none", "see Tools"),
    any("tool_choice", kResponses, "auto, none, required, or a function", "auto", ""),
    boolean("parallel_tool_calls", kResponses, "true", ""),
    any("text", kResponses, "{\"format\": ...}", "text", "see Structured output"),
    any("reasoning", kResponses, "{\"effort\": ...}", "the template's", "see Reasoning"),
    any("include", kResponses, "strings", "none",
        "message.output_text.logprobs; others are named in X-Winnow-Ignored"),
    integer("top_logprobs", kResponses, 0, 20, "0", ""),
    any("metadata", kResponses, "an object", "{}", "told back"),
    refused("background", kResponses),
    refused("conversation", kResponses),
    refused("prompt", kResponses),
    refused("max_tool_calls", kResponses),
    refused("truncation", kResponses, "\"disabled\""),
    ignored("user", kResponses),
    ignored("service_tier", kResponses, "there is one"),
    ignored("safety_identifier", kResponses),
    ignored("prompt_cache_key", kResponses, "the prefix cache needs none"),
    ignored("prompt_cache_retention", kResponses),
    ignored("stream_options", kResponses),
    // Of Anthropic's Messages API.
    text("model", kAnthropic, "any", "as above"),
    any("messages", kAnthropic, "messages", kRequired, "see Anthropic's API"),
    any("system", kAnthropic, "a string, or blocks of text", "none", "comes first"),
    integer("max_tokens", kAnthropic, 1, kMostTokens, kRequired, "not to count tokens"),
    any("stop_sequences", kAnthropic, "up to 16 strings", "none", ""),
    number_of("temperature", kAnthropic, 0.0, 100.0, "the model's; 1", ""),
    number_of("top_p", kAnthropic, 0.0, 1.0, "the model's; 1", ""),
    integer("top_k", kAnthropic, -1, kAnyInteger, "the model's; off", ""),
    boolean("stream", kAnthropic, "false", "server-sent events, as Anthropic has them"),
    any("tools", kAnthropic, "tools", "none", "without type, or custom"),
    any("tool_choice", kAnthropic, "auto, any, tool or none", "auto",
        "with disable_parallel_tool_use"),
    any("thinking", kAnthropic, "enabled, adaptive or disabled", "the template's",
        "budget_tokens is kept; named in X-Winnow-Ignored where the model does not think"),
    any("output_config", kAnthropic, "an object", "none",
        "format: as response_format; effort is named in X-Winnow-Ignored"),
    any("output_format", kAnthropic, "a JSON Schema's", "none", "as output_config.format"),
    refused("container", kAnthropic),
    refused("mcp_servers", kAnthropic),
    ignored("metadata", kAnthropic),
    ignored("service_tier", kAnthropic, "there is one"),
    ignored("context_management", kAnthropic),
    ignored("cache_control", kAnthropic, "the prefix cache needs none"),
    ignored("inference_geo", kAnthropic),

    // OpenAI's that would change an answer.
    refused("audio", kBoth),
    refused("modalities", kBoth, "[\"text\"]"),
    refused("functions", kBoth, {}, "use tools"),
    refused("function_call", kBoth, "\"none\"", "use tool_choice"),
    refused("tools", kText),
    refused("tool_choice", kText, "\"none\""),
    refused("reasoning_effort", kText, "\"none\""),
    refused("thinking_token_budget", kText),
    refused("web_search_options", kBoth),
    // vLLM's.
    refused("use_beam_search", kBoth),
    refused("length_penalty", kBoth, "1.0"),
    refused("early_stopping", kBoth),
    refused("prompt_embeds", kBoth),
    refused("structural_tag", kBoth),
    refused("logits_processors", kBoth),
    refused("kv_transfer_params", kBoth),
    refused("vllm_xargs", kBoth),
    refused("mm_processor_kwargs", kBoth),
    refused("media_io_kwargs", kBoth),
    refused("cache_salt", kBoth, {}, "the prefix cache is shared"),
    refused("return_tokens_as_token_ids", kBoth),
    refused("truncation_side", kBoth, "\"left\""),
    refused("guided_whitespace_pattern", kBoth),
    refused("repetition_detection", kBoth),
    // llama.cpp's.
    refused("dynatemp_range", kBoth),
    refused("dynatemp_exponent", kBoth, "1.0"),
    refused("top_n_sigma", kBoth, "-1.0"),
    refused("tfs_z", kBoth, "1.0"),
    refused("top_a", kBoth),
    refused("min_keep", kBoth),
    refused("samplers", kBoth),
    refused("post_sampling_probs", kBoth),
    refused("t_max_predict_ms", kBoth, "-1"),
    refused("n_indent", kBoth),
    refused("image_data", kBoth),
    refused("lora", kBoth),
    refused("input_prefix", kBoth),
    refused("input_suffix", kBoth),
    refused("input_extra", kBoth),
    refused("response_fields", kBoth),
    refused("return_progress", kBoth),
    refused("thinking_forced_open", kChat),
    refused("parse_tool_calls", kChat, "true"),
    refused("grammar_lazy", kBoth),
    refused("grammar_triggers", kBoth),
    // SGLang's.
    refused("lora_path", kBoth),
    refused("session_params", kBoth),
    refused("stop_regex", kBoth),
    refused("custom_logit_processor", kBoth),
    refused("custom_params", kBoth),
    refused("return_hidden_states", kBoth),
    refused("return_routed_experts", kBoth),
    refused("input_ids", kBoth),
    refused("input_embeds", kBoth),
    // TGI's.
    refused("inputs", kBoth, {}, "use prompt or messages"),
    refused("parameters", kBoth, {}, "fields of their own"),
    refused("watermark", kBoth),
    refused("adapter_id", kBoth),
    refused("decoder_input_details", kBoth),
    refused("top_n_tokens", kBoth),
    refused("guideline", kBoth),
    refused("tool_prompt", kChat),
    refused("do_sample", kBoth, "true", "use temperature = 0"),

    // What changes no answer.
    ignored("user", kBoth),
    ignored("metadata", kBoth),
    ignored("store", kBoth, "nothing is stored"),
    ignored("service_tier", kBoth, "there is one"),
    ignored("safety_identifier", kBoth),
    ignored("prompt_cache_key", kBoth, "the prefix cache needs none"),
    ignored("prompt_cache_retention", kBoth),
    ignored("prediction", kChat, "a hint for speed"),
    ignored("verbosity", kChat, "models here have no such setting"),
    ignored("request_id", kBoth, "use X-Request-Id"),
    ignored("guided_decoding_backend", kBoth, "there is one"),
    ignored("n_keep", kBoth, "contexts are never shifted"),
    ignored("n_discard", kBoth, "contexts are never shifted"),
    ignored("id_slot", kBoth, "any"),
    ignored("cache_prompt", kBoth, "the prefix cache is the server's setting"),
    ignored("n_cache_reuse", kBoth),
    ignored("timings_per_token", kBoth, "see /metrics"),
    ignored("stream_reasoning", kChat, "it is streamed with the rest"),
    ignored("rid", kBoth, "use X-Request-Id"),
    ignored("data_parallel_rank", kBoth),
    ignored("bootstrap_host", kBoth),
    ignored("bootstrap_port", kBoth),
    ignored("bootstrap_room", kBoth),
    ignored("return_cached_tokens_details", kBoth, "see usage"),
    ignored("details", kBoth),
};

}  // namespace

std::span<const FieldRule> field_rules() {
  return kRules;
}

}  // namespace winnow::server
