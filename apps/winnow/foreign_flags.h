// Flags and commands of other programs that users type from habit.
#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <string>
#include <string_view>

namespace winnow::cli {

struct ForeignFlag {
  std::string_view program;  // the program that has the flag
  std::string_view flag;
  std::string_view here;       // winnow's flag; "": there is none, and `note` says why
  std::string_view note = {};  // added after it
};

/// The flags in "Coming from vLLM" and "Coming from SGLang" in docs/serving.md and "Coming from
/// llama.cpp" in docs/usage.md that winnow does not have under the same name.
inline constexpr std::array kForeignFlags{
    ForeignFlag{"vLLM", "--served-model-name", "--model-name", " or --model-alias"},
    ForeignFlag{"vLLM", "--max-model-len", "--max-context"},
    ForeignFlag{"vLLM", "--gpu-memory-utilization", "--kv-gib", " (GiB of the cache alone)"},
    ForeignFlag{"vLLM", "--max-num-seqs", "--max-sequences", " (--max-requests follows)"},
    ForeignFlag{"vLLM", "--max-num-batched-tokens", "--chunk"},
    ForeignFlag{"vLLM", "--kv-cache-dtype", "--kv-dtype"},
    ForeignFlag{"vLLM", "--quantization", "--weights",
                " (of fp8 also --dtype fp8; AWQ and GPTQ are found in the files)"},
    ForeignFlag{"vLLM", "--ssl-certfile", "--tls-cert"},
    ForeignFlag{"vLLM", "--ssl-keyfile", "--tls-key"},
    ForeignFlag{"vLLM", "--tool-call-parser", "--tool-format", " (default: found in the model)"},
    ForeignFlag{"vLLM", "--reasoning-parser", "--reasoning-format",
                " (default: found in the model)"},
    ForeignFlag{"vLLM", "--enable-prefix-caching", "",
                "the default; --no-prefix-cache turns it off"},
    ForeignFlag{"vLLM", "--no-enable-prefix-caching", "--no-prefix-cache"},
    ForeignFlag{"vLLM", "--lora-modules", "--lora"},
    ForeignFlag{"vLLM", "--tensor-parallel-size", "--tensor-parallel"},
    ForeignFlag{"vLLM", "--disable-custom-all-reduce", "--rank-exchange", " nccl"},
    ForeignFlag{"vLLM", "--speculative-config", "--speculate", ", or --draft-model MODEL"},
    ForeignFlag{"vLLM", "--kv-events-config", "--kv-events"},
    ForeignFlag{"vLLM", "--enable-auto-tool-choice", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--enable-chunked-prefill", "", "not needed: prompts are always read so"},
    ForeignFlag{"vLLM", "--enable-lora", "", "not needed: --lora NAME=DIR suffices"},
    ForeignFlag{"vLLM", "--trust-remote-code", "",
                "not needed: winnow runs no code of a model; drop it"},
    ForeignFlag{"vLLM", "--kv-transfer-config", "--prefill-from",
                " (a server started with --serve-states)"},
    ForeignFlag{"vLLM", "--block-size", "--kv-block-size", " (in metrics and KV events alone)"},
    ForeignFlag{"vLLM", "--compilation-config", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--swap-space", "--host-gib"},
    ForeignFlag{"vLLM", "--cpu-offload-gb", "", "not supported: all weights are on the device"},
    ForeignFlag{"vLLM", "--max-logprobs", "", "not needed: the most is 20"},
    ForeignFlag{"vLLM", "--enforce-eager", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--disable-log-requests", "", "not needed: --log-level warn logs none"},
    ForeignFlag{"vLLM", "--load-format", "", "not needed: found in the files"},
    ForeignFlag{"vLLM", "--distributed-executor-backend", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--revision", "", "--model NAME@REVISION here"},
    ForeignFlag{"vLLM", "--download-dir", "", "the variable HF_HOME here"},
    ForeignFlag{"vLLM", "--tokenizer", "", "not supported: the model's is used"},
    ForeignFlag{"vLLM", "--hf-overrides", "", "not supported: edit the model's config.json"},
    ForeignFlag{"vLLM", "--enable-expert-parallel", "",
                "not supported: --tensor-parallel splits experts"},
    ForeignFlag{"vLLM", "--pipeline-parallel-size", "",
                "not supported: --tensor-parallel splits a model"},
    ForeignFlag{"vLLM", "--data-parallel-size", "",
                "not supported: start a server for each GPU behind a router"},
    ForeignFlag{"vLLM", "--chat-template", "--trust-request-chat-template",
                " (requests bring chat_template)"},
    ForeignFlag{"vLLM", "--max-lora-rank", "", "not needed: a GPU takes ranks up to 512"},
    ForeignFlag{"vLLM", "--max-loras", "", "not needed: all adapters stay loaded"},
    ForeignFlag{"vLLM", "--limit-mm-per-prompt", "", "not needed: models here take text alone"},
    ForeignFlag{"vLLM", "--root-path", "", "not supported: let the proxy cut the prefix off"},
    ForeignFlag{"vLLM", "--seed", "", "the field seed of a request here"},
    ForeignFlag{"vLLM", "--kv-cache-memory-bytes", "--kv-gib", " (in GiB)"},
    ForeignFlag{"vLLM", "--allowed-origins", "--cors-origin"},
    ForeignFlag{"vLLM", "--scheduling-policy", "",
                "not needed: the field priority of a request always counts"},
    ForeignFlag{"vLLM", "--rope-scaling", "--rope-yarn",
                " (other kinds than YaRN: edit the model's config.json)"},
    ForeignFlag{"vLLM", "--override-generation-config", "",
                "not supported: state it in the request, or in generation_config.json"},
    ForeignFlag{"vLLM", "--default-chat-template-kwargs", "",
                "not supported: state chat_template_kwargs in the request"},
    ForeignFlag{"vLLM", "--kv-offloading-size", "--host-gib"},
    ForeignFlag{"vLLM", "--uvicorn-log-level", "--log-level"},
    ForeignFlag{"vLLM", "--runner", "--task"},
    ForeignFlag{"vLLM", "--async-scheduling", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--disable-log-stats", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--enable-prompt-tokens-details", "", "not needed: drop it"},
    ForeignFlag{"vLLM", "--tokenizer-mode", "", "not needed: found in the model's files"},
    ForeignFlag{"vLLM", "--config", "", "not supported: state its lines as flags"},
    ForeignFlag{"vLLM", "--ssl-ca-certs", "",
                "not supported: let a proxy check certificates of clients"},
    ForeignFlag{"SGLang", "--model-path", "--model"},
    ForeignFlag{"SGLang", "--context-length", "--max-context"},
    ForeignFlag{"SGLang", "--tp", "--tensor-parallel"},
    ForeignFlag{"SGLang", "--tp-size", "--tensor-parallel"},
    ForeignFlag{"SGLang", "--dp", "", "not supported: start a server for each GPU behind a router"},
    ForeignFlag{"SGLang", "--dp-size", "",
                "not supported: start a server for each GPU behind a router"},
    ForeignFlag{"SGLang", "--mem-fraction-static", "--kv-gib", " (GiB of the cache alone)"},
    ForeignFlag{"SGLang", "--max-running-requests", "--max-sequences"},
    ForeignFlag{"SGLang", "--chunked-prefill-size", "--chunk"},
    ForeignFlag{"SGLang", "--disable-radix-cache", "--no-prefix-cache"},
    ForeignFlag{"SGLang", "--lora-paths", "--lora"},
    ForeignFlag{"SGLang", "--speculative-draft-model-path", "--draft-model"},
    ForeignFlag{"SGLang", "--speculative-num-steps", "--speculate", " model:N, or mtp:N"},
    ForeignFlag{"SGLang", "--speculative-algorithm", "--speculate",
                " mtp:N for NEXTN, or --draft-model HEAD for EAGLE3"},
    ForeignFlag{"llama.cpp", "-m", "--model"},
    ForeignFlag{"llama.cpp", "-hf", "--model"},
    ForeignFlag{"llama.cpp", "-p", "--prompt"},
    ForeignFlag{"llama.cpp", "-n", "--max-tokens"},
    ForeignFlag{"llama.cpp", "-t", "--threads"},
    ForeignFlag{"llama.cpp", "-c", "--max-context"},
    ForeignFlag{"llama.cpp", "--ctx-size", "--max-context"},
    ForeignFlag{"llama.cpp", "-ctk", "--kv-dtype"},
    ForeignFlag{"llama.cpp", "-ctv", "--kv-dtype"},
    ForeignFlag{"llama.cpp", "-ub", "--chunk"},
    ForeignFlag{"llama.cpp", "-md", "--draft-model"},
    ForeignFlag{"llama.cpp", "--model-draft", "--draft-model"},
    ForeignFlag{"llama.cpp", "--draft-max", "--speculate", " model:N"},
    ForeignFlag{"llama.cpp", "--temp", "--temperature"},
    ForeignFlag{"llama.cpp", "-ngl", "--device", " cuda"},
    ForeignFlag{"llama.cpp", "-np", "--max-sequences"},
};

struct ForeignCommand {
  std::string_view name;
  std::string_view here;
};

/// Ollama's commands that winnow does not have under the same name.
inline constexpr std::array kForeignCommands{
    ForeignCommand{"run", "winnow chat --model ORG/NAME"},
    ForeignCommand{"show", "winnow inspect ORG/NAME"},
    ForeignCommand{"create", "not needed: winnow chat --model FILE.gguf"},
    ForeignCommand{"list", "hf cache ls, of huggingface_hub"},
    ForeignCommand{"ls", "hf cache ls, of huggingface_hub"},
    ForeignCommand{"rm", "hf cache rm, of huggingface_hub"},
    ForeignCommand{"ps", "GET /v1/models of a server"},
    ForeignCommand{"stop", "Ctrl-C in winnow serve"},
};

/// A hint at what does the work of another program's command, to precede the error: "Ollama's run
/// is winnow chat --model ORG/NAME; ". "" if no program has the command.
std::string foreign_command_hint(std::string_view name);

/// A hint at winnow's name for another program's flag, to precede the error: "vLLM's
/// --max-model-len is --max-context here; ". "" if no program has the flag, or if neither
/// `command` nor a sibling of it has an equivalent.
std::string foreign_hint(const CLI::App& command, std::string_view flag);

}  // namespace winnow::cli
