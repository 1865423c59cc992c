#include <algorithm>

#include "base/error.h"
#include "checkpoint/replaceable_file.h"
#include "checkpoint/safetensors.h"
#include "eval/divergence.h"

namespace winnow::eval {
namespace {

const TensorView& tensor(const SafetensorsFile& file, std::string_view name, DType dtype,
                         const Shape& shape) {
  const TensorView& found = file.tensor(name);
  require(found.dtype == dtype && found.shape == shape,
          "{}: {} is {} [{}], expected {} [{}]: the runs of other prompts or another model",
          file.path().string(), name, dtype_name(found.dtype), fmt::join(found.shape, ", "),
          dtype_name(dtype), fmt::join(shape, ", "));
  return found;
}

}  // namespace

void require_saved_runs(const std::filesystem::path& file) {
  require_replaceable(file, safetensors_of("logits of `winnow eval`", [](std::string_view name) {
                        return name == "prompts" || name == "tokens" || name == "logits";
                      }));
}

void save_runs(const std::filesystem::path& file,
               std::span<const std::vector<std::int32_t>> prompts,
               std::span<const GreedyRun> runs) {
  std::vector<std::int32_t> all_prompts;
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    all_prompts.insert(all_prompts.end(), prompts[i].begin(), prompts[i].end());
    tokens.insert(tokens.end(), runs[i].tokens.begin(), runs[i].tokens.end());
    logits.insert(logits.end(), runs[i].logits.begin(), runs[i].logits.end());
  }
  const auto count = static_cast<std::int64_t>(runs.size());
  const std::int64_t steps = static_cast<std::int64_t>(tokens.size()) / count;
  const std::int64_t context = static_cast<std::int64_t>(all_prompts.size()) / count;
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size() / tokens.size());
  write_safetensors(
      file,
      {{"prompts", {DType::i32, {count, context}, std::as_bytes(std::span(all_prompts)).data()}},
       {"tokens", {DType::i32, {count, steps}, std::as_bytes(std::span(tokens)).data()}},
       {"logits", {DType::f32, {count, steps, vocab}, std::as_bytes(std::span(logits)).data()}}});
}

std::vector<GreedyRun> load_runs(const std::filesystem::path& file,
                                 std::span<const std::vector<std::int32_t>> prompts, int steps,
                                 int vocab) {
  const SafetensorsFile content(file);
  const auto count = static_cast<std::int64_t>(prompts.size());
  const auto context = static_cast<std::int64_t>(prompts.front().size());
  const auto all_prompts =
      tensor(content, "prompts", DType::i32, {count, context}).as<std::int32_t>();
  const auto tokens = tensor(content, "tokens", DType::i32, {count, steps}).as<std::int32_t>();
  const auto logits = tensor(content, "logits", DType::f32, {count, steps, vocab}).as<float>();
  std::vector<GreedyRun> runs(prompts.size());
  const auto each = static_cast<std::size_t>(steps);
  const std::size_t row = each * static_cast<std::size_t>(vocab);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    require(std::ranges::equal(all_prompts.subspan(i * prompts[i].size(), prompts[i].size()),
                               prompts[i]),
            "{}: prompt {} is another text", file.string(), i);
    const auto own_tokens = tokens.subspan(i * each, each);
    const auto own_logits = logits.subspan(i * row, row);
    runs[i].tokens.assign(own_tokens.begin(), own_tokens.end());
    runs[i].logits.assign(own_logits.begin(), own_logits.end());
  }
  return runs;
}

}  // namespace winnow::eval
