#include "engine/state_file.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "base/tensor.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "engine/options.h"

namespace winnow::engine {
namespace {

using Description = std::map<std::string, std::string>;

constexpr const char* kFormatKey = "format";
constexpr const char* kFormat = "winnow-state-1";  // the version of the layout
constexpr std::string_view kAnyFormat = "winnow-state-";
constexpr const char* kChecksumKey = "sha256";

std::string_view storage_name(WeightStorage storage) {
  constexpr std::array<std::string_view, 4> kNames{"as stored", "fp8", "int8", "int4"};
  return kNames[static_cast<std::size_t>(storage)];
}

template <class T>
void add(TensorMap& tensors, const char* name, DType type, const std::vector<T>& values) {
  if (!values.empty()) {
    tensors[name] = {type,
                     {static_cast<std::int64_t>(values.size())},
                     reinterpret_cast<const std::byte*>(values.data())};
  }
}

TensorMap tensors_of(const SavedState& state) {
  TensorMap tensors;
  add(tensors, "tokens", DType::i32, state.tokens);
  add(tensors, "archived", DType::i32, state.cache.archived);
  add(tensors, "entries", DType::i8, state.cache.entries);
  add(tensors, "marks", DType::i8, state.cache.marks);
  add(tensors, "logits", DType::f32, state.cache.logits);
  add(tensors, "open", DType::f32, state.cache.open);
  add(tensors, "positions", DType::i32, state.cache.positions);
  add(tensors, "attention", DType::f32, state.cache.attention);
  add(tensors, "query_statistics", DType::f32, state.cache.query_statistics);
  add(tensors, "state", DType::f32, state.cache.state);
  return tensors;
}

Description metadata_of(const StateKind& kind, const TensorMap& tensors) {
  Description description = kind.description();
  description[kFormatKey] = kFormat;
  description[kChecksumKey] = state_checksum(description, tensors);
  return description;
}

template <class T>
std::vector<T> values_of(const SafetensorsContent& content, const std::string& file,
                         const char* name, DType type) {
  const auto found = content.tensors.find(name);
  if (found == content.tensors.end()) {
    return {};
  }
  const TensorView& tensor = found->second;
  require(tensor.dtype == type && tensor.shape.size() == 1, "{}: {}: expected a list of {}", file,
          name, dtype_name(type));
  const auto* values = reinterpret_cast<const T*>(tensor.data);
  return {values, values + tensor.bytes() / sizeof(T)};
}

void require_kind(const Description& found, const StateKind& kind, const std::string& file) {
  for (const auto& [name, expected] : kind.description()) {
    const auto value = found.find(name);
    require(value != found.end(), "{}: does not say for which {} it was saved", file, name);
    require(value->second == expected, "{}: was saved for {} {}, this run has {}", file, name,
            in_quotes(value->second), in_quotes(expected));
  }
}

void require_format(const Description& found, const std::string& file) {
  const auto format = found.find(kFormatKey);
  require(format != found.end(), "{}: is not a winnow state file", file);
  require(format->second == kFormat, "{}: has format {}, expected {}", file,
          in_quotes(format->second), kFormat);
}

void require_undamaged(const SafetensorsContent& content, const std::string& file) {
  Description description = content.metadata;
  const auto stored = description.extract(kChecksumKey);
  require(!stored.empty() && content.unusable.empty() &&
              stored.mapped() == state_checksum(description, content.tensors),
          "{}: is damaged: its checksum does not match", file);
}

// Reads the file instead of mapping it: so the bytes that were checked are those that are used,
// even if the file changes meanwhile. nullopt if there is no such file.
std::optional<Buffer<std::byte>> read_all(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) {
    return std::nullopt;
  }
  require_system(file >= 0, "{}: cannot open", path.string());
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } const closer{file};
  struct stat status = {};
  require_system(::fstat(file, &status) == 0, "{}: cannot read", path.string());
  require(S_ISREG(status.st_mode), "{}: is not a file", path.string());
  Buffer<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    require_system(count >= 0, "{}: cannot read", path.string());
    require(count > 0, "{}: became shorter while it was read", path.string());
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace

StateKind::StateKind(std::string model_digest, const kvcache::CacheShape& cache_shape,
                     const EngineConfig& config, const kvcache::SequenceLimits& limits)
    : model(std::move(model_digest)),
      shape(cache_shape),
      rule(config.cache, limits),
      layout(cache_shape.page_layout(config.cache.format)),
      compute(config.compute),
      weights(config.weights),
      deterministic(config.deterministic) {}

std::map<std::string, std::string> StateKind::description() const {
  Description result{{"model", model},
                     {"layers", std::to_string(shape.layers)},
                     {"kv heads", std::to_string(shape.kv_heads)},
                     {"head dim", std::to_string(shape.head_dim)},
                     {"cache", std::string(rule.traits->name)},
                     {"kv dtype", std::string(ops::format_name(layout.format()))},
                     {"dtype", std::string(dtype_name(compute))},
                     {"weights", std::string(storage_name(weights))},
                     {"deterministic", deterministic ? "yes" : "no"}};
  const auto say = [&result](const char* name, int value) { result[name] = std::to_string(value); };
  if (shape.has_sliding_layers()) {
    result["reach"] = fmt::format("{}", fmt::join(shape.reach, ","));
  }
  if (shape.chunked) {
    result["chunked"] = "yes";
  }
  for (std::size_t layer = 0; layer < shape.heads.size(); ++layer) {
    result["heads"] += fmt::format("{} ", shape.heads[layer].kv_heads);
  }
  if (shape.states.size() > 0) {
    result["recurrent state"] = fmt::format("{} x {}", shape.states.layers, shape.states.floats);
  }
  if (rule.traits->marks) {
    say("window", rule.window);
    say("shift", rule.shift);
  }
  if (rule.traits->has_sinks) {
    say("sinks", rule.sinks);
  }
  if (rule.traits->has_budget) {
    say("budget", rule.budget);
  }
  if (rule.traits->selects) {
    say("page entries", rule.page_entries);
  }
  if (rule.traits->minds_prompt) {
    say("prompt tokens", rule.prompt_tokens);
  }
  return result;
}

void write_state(const std::filesystem::path& path, const StateKind& kind,
                 const SavedState& state) {
  const TensorMap tensors = tensors_of(state);
  // For the owner only: it contains the prompt.
  write_safetensors(path, tensors, metadata_of(kind, tensors), FileAccess::owner_only);
}

std::string state_image(const StateKind& kind, const SavedState& state) {
  const TensorMap tensors = tensors_of(state);
  return safetensors_image(tensors, metadata_of(kind, tensors));
}

std::string state_checksum(const Description& description, const TensorMap& tensors) {
  Sha256 hash;
  for (const auto& [name, value] : description) {
    hash.update(fmt::format("{}={}\n", name, value));
  }
  for (const auto& [name, tensor] : tensors) {
    hash.update(fmt::format("{} {}\n", name, tensor.bytes()));
    hash.update(std::span(tensor.data, tensor.bytes()));
  }
  return hash.finish();
}

std::optional<SavedState> find_state(const std::filesystem::path& path, const StateKind& kind) {
  const auto image = read_all(path);
  return image ? std::optional(parse_state(image->span(), path.string(), kind)) : std::nullopt;
}

SavedState read_state(const std::filesystem::path& path, const StateKind& kind) {
  auto state = find_state(path, kind);
  require(state.has_value(), "{}: there is no such file", path.string());
  return *std::move(state);
}

bool claims_to_be_state(const std::filesystem::path& path) {
  constexpr std::uint64_t kLongestHeader = 1 << 16;  // a state's header takes 2 KiB
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    return false;  // opening a pipe would wait for a writer
  }
  std::ifstream file(path, std::ios::binary);
  require_system(file.is_open(), "{}: cannot open", path.string());
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!file || length > kLongestHeader) {
    return false;
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto header = json_or_discarded<nlohmann::json>(text);
  const nlohmann::json::json_pointer format("/__metadata__/format");
  return file && header.is_object() && header.contains(format) && header.at(format).is_string() &&
         header.at(format).get<std::string>().starts_with(kAnyFormat);
}

SavedState parse_state(std::span<const std::byte> image, const std::string& name,
                       const StateKind& kind) {
  const SafetensorsContent content = parse_safetensors(image, name);
  require_format(content.metadata, name);
  require_undamaged(content, name);
  require_kind(content.metadata, kind, name);
  SavedState state;
  state.tokens = values_of<std::int32_t>(content, name, "tokens", DType::i32);
  kvcache::SavedSequence& cache = state.cache;
  cache.length = static_cast<int>(state.tokens.size());
  cache.archived = values_of<std::int32_t>(content, name, "archived", DType::i32);
  cache.entries = values_of<std::byte>(content, name, "entries", DType::i8);
  cache.marks = values_of<std::int8_t>(content, name, "marks", DType::i8);
  cache.logits = values_of<float>(content, name, "logits", DType::f32);
  cache.open = values_of<float>(content, name, "open", DType::f32);
  cache.positions = values_of<std::int32_t>(content, name, "positions", DType::i32);
  cache.attention = values_of<float>(content, name, "attention", DType::f32);
  cache.query_statistics = values_of<float>(content, name, "query_statistics", DType::f32);
  cache.state = values_of<float>(content, name, "state", DType::f32);
  try {
    kvcache::validate(cache, kind.shape, kind.layout, kind.rule);
  } catch (const Error& error) {
    fail("{}: {}", name, error.what());
  }
  return state;
}

}  // namespace winnow::engine
