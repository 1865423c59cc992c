// winnow's C++ API: load a model, generate text with a compressed KV cache, see what it held.
//
//   winnow::LoadOptions options;
//   options.model = "models/llama-3.2-1b-dms-8x";
//   winnow::Llm llm = winnow::Llm::load(options);
//   winnow::Generation result = llm.generate("Once upon a time", {.max_tokens = 64});
//   fmt::print("{} ({:.1f}x smaller cache)\n", result.samples[0].text,
//              result.samples[0].kv.compression_ratio);
//
// Errors that the user can mend are thrown as std::runtime_error with a one-line message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/sampling.h"

namespace winnow {

/// What to load and how to run it. The command line's flags of the same names set these; load()
/// validates them against each other and against the checkpoint.
struct LoadOptions {
  std::string model = {};  // a Hugging Face model directory
  /// The longest text, for models whose RoPE depends on it (docs/models.md); for other models it
  /// lowers the limit. Unset: the value in config.json.
  std::optional<int> context = {};
  /// Stretch a plain RoPE by YaRN, to so many times the positions (docs/models.md). Unset: not.
  std::optional<double> rope_yarn = {};

  /// A compression probe for a plain model (docs/method.md): a directory. Empty: none.
  std::string probe = {};
  /// It evicts entries with a lower score. Unset: the probe's own, if it has one.
  std::optional<double> probe_threshold = {};

  /// auto (what the checkpoint was trained for), dense, dms, dmc, streaming, tova, h2o, quest,
  /// random, snapkv, rkv, vatp, pyramidkv, expected_attention, triattention, dms_quest or
  /// dms_budget.
  std::string cache = "auto";
  std::optional<double> cr = {};   // compression ratio; all but the first four need it
  std::string calibration = {};    // triattention: the file of winnow calibrate
  std::optional<int> window = {};  // dms, dms_quest, dms_budget: instead of the checkpoint's
  std::string kv_dtype = {};       // bf16, fp8, int8, q4 or fp32; empty: as `dtype`, bf16 for fp8
  double kv_gib = 0.0;  // most memory for cached entries; 0: nine tenths of what weights leave
  /// The host's memory in GiB for prefixes and preempted sequences that leave the cache: they move
  /// there and back instead of being computed again; 0: none. On a CUDA device it is page-locked
  /// when the model is loaded.
  double host_gib = 0.0;

  /// Of computation: bf16, fp32 or, on cuda with fp8 weights, fp8, in which prompts and large
  /// batches are multiplied.
  std::string dtype = "bf16";
  std::string weights = "auto";  // auto (as stored), int8, int4 or, on cuda, fp8 (while loading)
  std::string device = "cpu";    // cpu, cuda or cuda:N
  /// Ranks that each compute a part of the model: the processes that a launcher (mpirun, srun,
  /// torchrun) has started, or else threads of this one; at most as many as query heads. In
  /// processes other than the first, load() returns only by an error, when the first has ended.
  /// docs/many-devices.md
  int tensor_parallel = 1;
  /// How ranks on CUDA devices exchange results: auto (through each other's memory, where the
  /// devices of one machine can reach it; else NCCL) or nccl.
  std::string rank_exchange = "auto";
  /// Speculation: lookup or lookup:N. What followed the last tokens where the text had them before
  /// is taken for a draft of up to N (8) tokens, which one step verifies. Answers stay the same.
  /// mtp or mtp:N: the multi-token-prediction layer in the model's files drafts. With a
  /// `draft_model`: model or model:N. Empty: none, or with a draft model model:8.
  std::string speculate = {};
  /// A small model with the same vocabulary, which drafts instead: a model directory. Or an EAGLE-3
  /// head of the model. It runs on the same device, and its cache takes a part of `kv_gib`. Empty:
  /// none.
  std::string draft_model = {};
  int threads = 0;             // 0: one per core
  int chunk = 0;               // most tokens per step: longer prompts are cut; 0: 512, cuda 8192
  bool deterministic = false;  // results do not depend on chunking or batching, to the last bit
  /// Keep the cache of what was read and written for later prompts that begin the same, while
  /// `kv_gib` has room. Rules that need `cr` read every prompt anew.
  bool reuse_prefixes = false;
  /// With one rank: called while the weights are read, with the layers that are done and their
  /// number. What it throws ends load().
  std::function<void(int done, int layers)> on_layer = {};
};

/// The progress of a generation.
struct Progress {
  int prompt_tokens = 0;
  int prompt_done = 0;  // with others beside it: at most this many
  int generated = 0;    // over all samples
};

struct GenerateOptions {
  int max_tokens = 128;
  SamplingOptions sampling = {};
  int samples = 1;                     // continuations of the one prompt
  int logprobs = -1;                   // alternatives to tell per token; -1: no log-probabilities
  bool prompt_logprobs = false;        // also of the prompt; max_tokens may be 0 then
  std::vector<std::string> stop = {};  // text ends before the first of these
  bool ignore_eos = false;             // go on after the checkpoint's end-of-text tokens
  /// A file that keeps the cache of a prompt. A beginning of this prompt that it holds is not
  /// computed again; afterwards it holds this prompt (without its last token). A file that is not a
  /// state is not overwritten. Empty: none.
  std::string prompt_cache = {};
  bool prompt_cache_read_only = false;  // the file stays as it is
  bool add_special = true;  // of a text prompt: BOS and the like; false for rendered chats
  /// Called after every step; false ends the generation with what there is.
  std::function<bool(const Progress&)> on_step = {};
};

/// Receives text as soon as it is final; always whole UTF-8 characters.
using TextCallback = std::function<void(int sample, std::string_view text)>;

/// What a sequence's cache held at its end.
struct CacheStats {
  std::size_t bytes = 0;                         // of allocated pages, metadata included
  std::size_t state_bytes = 0;                   // of these, what recurrent layers keep
  std::size_t dense_bytes = 0;                   // a dense cache of this length and storage format
  double compression_ratio = 1.0;                // dense length / stored length
  std::int64_t live_entries = 0;                 // over layers and heads
  std::vector<std::vector<int>> per_layer_head;  // live entries [cache_layers][kv_heads]
};

struct Sample {
  std::string text;
  std::vector<std::int32_t> token_ids;  // all that were generated, an end-of-text token included
  std::vector<ScoredToken> logprobs;    // of token_ids, if asked for
  std::string finish_reason;            // stop, length, cancelled, out_of_memory or not_numbers
  CacheStats kv;
};

struct Generation {
  std::vector<Sample> samples;
  int prompt_tokens = 0;
  std::vector<ScoredToken> prompt_logprobs;  // of the prompt's tokens but the first, if asked for
  /// Of the prompt, from GenerateOptions::prompt_cache or by LoadOptions::reuse_prefixes.
  int reused_tokens = 0;
  int drafted_tokens = 0;   // over all samples, by LoadOptions::speculate or draft_model
  int accepted_tokens = 0;  // of those
  /// Why the file could not be used or written; empty: no problem.
  std::string prompt_cache_warning = {};
  double prefill_tokens_per_s = 0.0;
  double decode_tokens_per_s = 0.0;  // over all samples, and all that ran beside them
};

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

/// What a chat template tells a reasoning model.
enum class Thinking : std::uint8_t {
  by_template,  // what the template says by itself
  off,
};

struct ModelInfo {
  std::string family;  // llama, qwen2, qwen3 or mistral
  int layers = 0;
  int cache_layers = 0;  // that hold entries: all but recurrent ones
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int hidden = 0;
  int vocab = 0;
  int max_positions = 0;
  std::int64_t parameters = 0;
  std::string cache;          // the rule this run follows: dense, dms, ...
  std::string kv_dtype = {};  // how it stores entries
  int window = -1;            // dms only
};

/// The current memory of all caches of a model.
struct CacheMemory {
  std::size_t bytes = 0;     // of all pages that sequences hold
  std::size_t capacity = 0;  // what `bytes` can become
  std::size_t running = 0;   // sequences that hold cache
  std::size_t waiting = 0;   // sequences that do not yet
};

/// The output of one token of a stream.
struct Piece {
  int sample = 0;
  std::int32_t token = -1;  // -1: none, only the text that was held back until the end
  std::string text;         // that has become certain: whole UTF-8 characters
};

/// A running request, from Llm::start(). It has no thread: a caller that waits for a stream runs a
/// step of the model, and a step advances all streams of the model in one batch. Different threads
/// may wait for different streams.
class Stream {
 public:
  struct State;

  ~Stream();  // cancels an unfinished request; frees its cache at once
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  /// Runs a step, or waits for the running one, unless pieces are available. False: the request is
  /// finished.
  bool advance();
  /// The pieces since the last call.
  std::vector<Piece> take();
  /// Ends all samples with their current text.
  void cancel();
  [[nodiscard]] Progress progress() const;
  /// What the cache of the first sample holds: between two steps, or at its end.
  [[nodiscard]] CacheStats cache() const;
  /// The whole result of a finished request; may be called once.
  Generation finish();

 private:
  friend class Llm;
  explicit Stream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A loaded model. Any number of threads may call it; concurrent requests run as one batch. A
/// stream keeps the model alive.
class Llm {
 public:
  static Llm load(const LoadOptions& options);
  ~Llm();
  Llm(Llm&&) noexcept;
  Llm& operator=(Llm&&) noexcept;

  Generation generate(std::string_view prompt, const GenerateOptions& options = {},
                      const TextCallback& on_text = {});
  /// Models without tokenizer files take token ids; samples then have no text.
  Generation generate(std::span<const std::int32_t> prompt, const GenerateOptions& options = {},
                      const TextCallback& on_text = {});
  /// Queues a request; options.on_step is not used. Start several, then wait for each: they run as
  /// one batch.
  Stream start(std::span<const std::int32_t> prompt, const GenerateOptions& options = {});

  /// Reads `tokens` through the cache. `logits` [tokens, vocab] receives the prediction after each
  /// token, `live_entries` [tokens, cache_layers * kv_heads] the number of entries that its query
  /// saw; either may be empty. `on_step` is called after every step; false ends it.
  void logits(std::span<const std::int32_t> tokens, std::span<float> logits,
              std::span<std::int32_t> live_entries = {},
              const std::function<bool(const Progress&)>& on_step = {});

  [[nodiscard]] std::vector<std::int32_t> tokenize(std::string_view text,
                                                   bool add_special = true) const;
  [[nodiscard]] std::string detokenize(std::span<const std::int32_t> ids) const;
  /// The prompt that asks the model to answer `messages`, by its chat template. Generate from it
  /// with add_special = false: the template writes BOS itself. Thinking::off is an error if the
  /// template has no variable for it.
  [[nodiscard]] std::string render_chat(std::span<const ChatMessage> messages,
                                        Thinking thinking = Thinking::by_template) const;

  [[nodiscard]] const ModelInfo& info() const;
  /// Waits for a running step.
  [[nodiscard]] CacheMemory cache_memory() const;

 private:
  struct Impl;
  explicit Llm(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace winnow
