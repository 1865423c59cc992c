#include "hub/pull.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/note.h"
#include "checkpoint/weight_files.h"
#include "hub/blob_download.h"
#include "hub/gguf_choice.h"
#include "hub/header_download.h"
#include "hub/http_client.h"
#include "hub/remote_repository.h"
#include "hub/repository_cache.h"
#include "hub/workers.h"

namespace winnow::hub {
namespace {

namespace fs = std::filesystem;

bool holds_values(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".gguf");
}

bool is_configuration(const std::string& name) {
  constexpr std::array<std::string_view, 5> kNames{"config.json", "generation_config.json",
                                                   "dms_metadata.json", "quant_config.json",
                                                   "quantize_config.json"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// The file with the weights, or the index of such files.
bool is_weights(const std::string& name) {
  return name == kWeightFile || name == kWeightIndex;
}

/// What to bring of weight files.
enum class Extent : std::uint8_t { whole, headers };

/// One call of pull() or pull_headers().
class Pull {
 public:
  Pull(const ModelName& name, const Environment& environment, const OnProgress& on_progress,
       const fs::path& cache, Extent extent)
      : name_(name),
        environment_(environment),
        on_progress_(on_progress),
        extent_(extent),
        repository_(environment, name),
        cache_(cache, name.repository) {}

  fs::path run() {
    each(1, [&](HttpClient& client, std::size_t) { listing_ = repository_.list(client); });
    std::string opened;  // the file to open; empty: the directory
    if (wants_gguf()) {
      const std::vector<std::string> files =
          choose_gguf(listing_.files, name_.gguf, name_.repository);
      opened = files.front();
      describe(files);
    } else {
      describe(needed_files());
      if (has(kWeightIndex) && !has(kWeightFile)) {
        add_shards();
      }
    }
    for (const RemoteFile& file : files_) {
      total_ += static_cast<std::int64_t>(file.size);
    }
    cache_.make_blob_folder();
    if (extent_ == Extent::whole) {
      require_space();
      announce();
    }
    download(0);
    std::map<std::string, std::string> etags;
    for (const RemoteFile& file : files_) {
      etags.emplace(file.name, file.etag);
    }
    cache_.publish(listing_.commit, name_.revision, etags);
    const fs::path snapshot = cache_.snapshot(listing_.commit);
    return opened.empty() ? snapshot : snapshot / opened;
  }

  [[nodiscard]] std::int64_t done() const { return done_; }
  [[nodiscard]] std::int64_t total() const { return total_; }

 private:
  [[nodiscard]] bool has(const std::string& name) const {
    return std::ranges::find(listing_.files, name) != listing_.files.end();
  }

  /// Whether to take GGUF files: if one is named, or if there are no others.
  [[nodiscard]] bool wants_gguf() const {
    return !name_.gguf.empty() ||
           (!has_weights() && std::ranges::any_of(listing_.files, is_gguf_model));
  }
  [[nodiscard]] bool has_weights() const { return has(kWeightFile) || has(kWeightIndex); }

  [[nodiscard]] std::vector<std::string> needed_files() const {
    require(has("config.json") && has_weights(),
            "{}: {} is no model that winnow can run: it has no {}", name_.repository,
            name_.revision, has("config.json") ? "weights in safetensors" : "config.json");
    std::vector<std::string> names;
    std::ranges::copy_if(listing_.files, std::back_inserter(names), [&](const std::string& name) {
      const bool wanted =
          extent_ == Extent::whole ? is_needed(name) : is_configuration(name) || is_weights(name);
      return wanted && (name != kWeightIndex || !has(kWeightFile));
    });
    return names;
  }

  void each(std::size_t count, const std::function<void(HttpClient&, std::size_t)>& work) {
    work_in_parallel(environment_, count, work, [&] {
      if (on_progress_ && total_ > 0) {
        on_progress_(done_, total_);
      }
    });
  }

  void describe(const std::vector<std::string>& names) {
    const std::size_t first = files_.size();
    files_.resize(first + names.size());
    each(names.size(), [&](HttpClient& client, std::size_t i) {
      files_[first + i] = repository_.describe(client, listing_.commit, names[i]);
    });
  }

  void add_shards() {
    const auto index = std::ranges::find(files_, kWeightIndex, &RemoteFile::name);
    cache_.make_blob_folder();
    download(static_cast<std::size_t>(index - files_.begin()), 1);
    const std::vector<std::string> shards = read_shard_names(cache_.blob(index->etag));
    for (const std::string& shard : shards) {
      require(has(shard), "{}: {} names {}, which is not there", name_.repository, kWeightIndex,
              shard);
    }
    describe(shards);
    done_ = 0;
  }

  void require_space() const {
    std::uintmax_t missing = 0;
    for (const RemoteFile& file : files_) {
      std::error_code ignored;
      if (!fs::exists(cache_.blob(file.etag), ignored)) {
        const std::uintmax_t there = fs::file_size(cache_.incomplete_blob(file.etag), ignored);
        missing += file.size - (ignored ? 0 : std::min<std::uintmax_t>(there, file.size));
      }
    }
    const fs::path folder = cache_.make_blob_folder();
    const std::uintmax_t available = fs::space(folder).available;
    require(missing <= available, "{}: {:.2f} GB are needed, and {:.2f} GB are free",
            folder.string(), static_cast<double>(missing) * 1e-9,
            static_cast<double>(available) * 1e-9);
  }

  void announce() const {
    note(fmt::format("{}: {} files, {:.2f} GB, of commit {} at {}", name_.repository, files_.size(),
                     static_cast<double>(total_) * 1e-9, listing_.commit.substr(0, 12),
                     environment_.endpoint));
  }

  /// Downloads `count` files from `first` on, large ones first, so that none of these ends last.
  void download(std::size_t first, std::size_t count = SIZE_MAX) {
    std::vector<const RemoteFile*> order;
    for (std::size_t i = first; i < files_.size() && order.size() < count; ++i) {
      order.push_back(&files_[i]);
    }
    std::ranges::sort(order, std::greater(), &RemoteFile::size);
    each(order.size(), [&](HttpClient& client, std::size_t i) {
      const bool in_part = extent_ == Extent::headers && holds_values(order[i]->name);
      (in_part ? download_header : download_blob)(client, repository_, *order[i], cache_, done_);
    });
  }

  const ModelName& name_;
  const Environment& environment_;
  const OnProgress& on_progress_;
  Extent extent_;
  RemoteRepository repository_;
  RepositoryCache cache_;
  Listing listing_;
  std::vector<RemoteFile> files_;
  std::atomic<std::int64_t> done_ = 0;
  std::int64_t total_ = 0;
};

/// work(), if the environment allows downloads. A broken connection becomes an error that says what
/// to do; `resume` says it if there was a connection.
template <class Work>
auto explained(const ModelName& name, const Environment& environment, const std::string& resume,
               const Work& work) {
  const std::string elsewhere =
      fmt::format("pull it on another machine, and copy {} from there",
                  RepositoryCache(environment.cache, name.repository).folder().string());
  require(!environment.offline, "{}: HF_HUB_OFFLINE is set, so nothing is downloaded; {}",
          name.repository, elsewhere);
  try {
    return work();
  } catch (const TransferError& error) {
    throw TransferError(
        error.reached()
            ? fmt::format("{}: {}{}", name.repository, error.what(), resume)
            : fmt::format("{}: the Hub cannot be reached: {}; HF_ENDPOINT names a mirror, or {}",
                          name.repository, error.what(), elsewhere),
        error.reached());
  }
}

}  // namespace

bool is_needed(const std::string& name) {
  constexpr std::array<std::string_view, 7> kOfTokenizer{
      "tokenizer.json",          "tokenizer.model",   "tokenizer_config.json",
      "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
      "chat_template.json"};
  return is_configuration(name) || is_weights(name) ||
         std::ranges::find(kOfTokenizer, name) != kOfTokenizer.end() ||
         (name.starts_with("additional_chat_templates/") && name.ends_with(".jinja"));
}

fs::path pull(const ModelName& name, const Environment& environment,
              const OnProgress& on_progress) {
  return explained(
      name, environment, fmt::format("; winnow pull {} goes on where this ended", name.repository),
      [&] { return Pull(name, environment, on_progress, environment.cache, Extent::whole).run(); });
}

PulledHeaders pull_headers(const ModelName& name, const Environment& environment,
                           const fs::path& folder, const OnProgress& on_progress) {
  return explained(name, environment, "", [&] {
    Pull work(name, environment, on_progress, folder, Extent::headers);
    const fs::path model = work.run();
    return PulledHeaders{.model = model, .read = work.done(), .total = work.total()};
  });
}

namespace {

/// What to open of a snapshot, if it is complete. Offline, an incomplete one must do: its readers
/// report missing files.
std::optional<fs::path> find_in_snapshot(const fs::path& snapshot, const ModelName& name,
                                         bool offline, Purpose purpose) {
  std::error_code ignored;
  const std::vector<std::string> files = snapshot_files(snapshot);
  const bool described = fs::exists(snapshot / "config.json", ignored);
  if (name.gguf.empty() && (is_complete(snapshot, purpose) || (offline && described))) {
    return snapshot;
  }
  if (std::ranges::none_of(files, is_gguf_model) || (name.gguf.empty() && described)) {
    return std::nullopt;
  }
  try {
    return snapshot / choose_gguf(files, name.gguf, name.repository).front();
  } catch (const Error&) {
    if (offline) {
      throw;
    }
    return std::nullopt;  // the Hub may have it
  }
}

}  // namespace

std::optional<fs::path> find_local_model(const std::string& model, Purpose purpose) {
  std::error_code ignored;
  const auto name = parse_model_name(model);
  if (!name || fs::exists(model, ignored)) {
    return model;
  }
  const Environment environment = read_environment();
  const RepositoryCache cache(environment.cache, name->repository);
  if (const auto commit = cache.commit_of(name->revision)) {
    if (auto found =
            find_in_snapshot(cache.snapshot(*commit), *name, environment.offline, purpose)) {
      return found;
    }
  }
  require(!environment.offline,
          "{}: no such directory, not in the cache {}, and HF_HUB_OFFLINE is set, so nothing is "
          "downloaded",
          model, environment.cache.string());
  return std::nullopt;
}

namespace {

/// An error's message for a sentence that names the repository already.
std::string without_name(const Error& error, const ModelName& name) {
  const std::string message = error.what();
  const std::string start = name.repository + ": ";
  return message.starts_with(start) ? message.substr(start.size()) : message;
}

}  // namespace

void bring_model(const std::string& model, const BringModel& bring) {
  const Environment environment = read_environment();
  const ModelName name = *parse_model_name(model);
  try {
    bring(name, environment);
  } catch (const NoSuchModel& error) {
    fail("{}: no such directory; {}", model, without_name(error, name));
  } catch (const TransferError& error) {
    fail("{}: no such directory, and not in the cache {}; {}", model, environment.cache.string(),
         without_name(error, name));
  }
}

std::string find_model(const std::string& model, const OnProgress& on_progress, Purpose purpose) {
  std::optional<fs::path> found = find_local_model(model, purpose);
  if (!found) {
    bring_model(model, [&](const ModelName& name, const Environment& environment) {
      found = pull(name, environment, on_progress);
    });
  }
  return *found;
}

}  // namespace winnow::hub
