#include "train/tokenize.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/threads.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json_text.h"
#include "checkpoint/model_path.h"
#include "train/line_reader.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t kMostComplaints = 5;
constexpr std::size_t kMostIgnored = 16;

/// Lines that are tokenised together.
struct LineBlock {
  static constexpr std::size_t kMostBytes = std::size_t{1} << 22;

  struct Line {
    std::string text;
    std::int64_t number = 0;
    Document document;
    std::string complaint;
  };
  std::vector<Line> lines;
  std::size_t bytes = 0;

  /// False when the file has no more lines.
  bool fill(LineReader& reader) {
    lines.clear();
    bytes = 0;
    for (std::string text; bytes < kMostBytes && reader.next(text);) {
      if (text.find_first_not_of(" \t") != std::string::npos) {
        bytes += text.size();
        lines.push_back({std::move(text), reader.number(), {}, {}});
      }
    }
    return !lines.empty();
  }

  void encode(const DocumentEncoder& encoder) {
    parallel_each(lines.size(), [&](std::size_t i, int) {
      try {
        lines[i].document = encoder.encode(lines[i].text);
      } catch (const std::exception& error) {  // a loop's body must not throw
        lines[i].complaint = error.what();
      }
    });
  }
};

void name_ignored(const Document& document, std::set<std::string>& names) {
  for (const std::string& key : document.ignored) {
    if (names.size() < kMostIgnored) {
      names.insert(key);
    }
  }
}

std::string content_hash(const fs::path& path) {
  const MappedFile file(path);
  std::uint64_t hash = file.bytes().size();
  for (const std::byte byte : file.bytes()) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
  }
  return fmt::format("{:016x}", mix64(hash));
}

std::int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  require(!error, "{}: cannot read: {}", path.string(), error.message());
  return static_cast<std::int64_t>(size);
}

}  // namespace

/// Digests of everything that determines how texts become tokens.
ordered_json tokenizer_origin(const fs::path& model) {
  ordered_json tokenizer = ordered_json::object();
  if (is_gguf_model(model)) {
    Sha256 digest;
    const gguf::File file(model);
    for (const auto& [key, value] : file.metadata().items()) {
      if (key.starts_with("tokenizer.")) {
        digest.update(key + json_text_replacing(value));
      }
    }
    tokenizer["gguf"] = digest.finish();
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                           "chat_template.jinja", "special_tokens_map.json"}) {
    std::error_code ignored;
    if (fs::is_regular_file(model / name, ignored)) {
      tokenizer[name] = content_hash(model / name);
    }
  }
  return tokenizer;
}

ordered_json data_origin(const TokenizeOptions& options) {
  ordered_json files = ordered_json::array();
  for (const fs::path& path : options.files) {
    const auto time = size_of(path) < 0 ? fs::file_time_type() : fs::last_write_time(path);
    files.push_back({{"path", fs::absolute(path).lexically_normal().string()},
                     {"bytes", size_of(path)},
                     {"time", time.time_since_epoch().count()}});
  }
  return {{"files", files},
          {"tokenizer", tokenizer_origin(options.model)},
          {"mask_prompts", options.mask_prompts}};
}

TokenizeResult tokenize_files(const TokenizeOptions& options, const model::ModelSpec& spec,
                              const fs::path& directory) {
  require(options.max_malformed >= 0.0 && options.max_malformed <= 1.0,
          "--max-malformed {}: expected 0 to 1", options.max_malformed);
  const ordered_json origin = data_origin(options);
  const DocumentEncoder encoder(options.model, spec, options.mask_prompts);
  ShardWriter writer(directory);
  TokenizeResult result;
  std::int64_t total = 0;
  for (const fs::path& path : options.files) {
    total += size_of(path);
  }
  std::int64_t before = 0;
  std::int64_t lines = 0;
  for (const fs::path& path : options.files) {
    LineReader reader(path);
    for (LineBlock block; block.fill(reader);) {
      block.encode(encoder);
      for (const LineBlock::Line& line : block.lines) {
        if (line.complaint.empty()) {
          writer.add(line.document);
          name_ignored(line.document, result.ignored);
        } else {
          ++result.malformed;
          if (result.complaints.size() < kMostComplaints) {
            result.complaints.push_back(
                fmt::format("{}:{}: {}", path.string(), line.number, line.complaint));
          }
        }
      }
      lines += static_cast<std::int64_t>(block.lines.size());
      require(!options.on_progress || options.on_progress(before + reader.bytes_read(), total),
              "tokenising was stopped");
    }
    before += size_of(path);
  }
  require(
      static_cast<double>(result.malformed) <= options.max_malformed * static_cast<double>(lines),
      "{} of {} lines are malformed, more than the share of {} that is allowed; the first: {}",
      result.malformed, lines, options.max_malformed,
      result.complaints.empty() ? "" : result.complaints.front());
  require(writer.tokens() > 0, "{}: no text is there",
          options.files.empty() ? "" : options.files.front().string());
  result.documents = writer.documents();
  result.tokens = writer.tokens();
  writer.finish(origin);
  return result;
}

}  // namespace winnow::train
