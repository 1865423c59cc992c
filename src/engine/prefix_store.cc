#include "engine/prefix_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"

namespace winnow::engine {
namespace {

namespace fs = std::filesystem;
using Tokens = std::span<const std::int32_t>;

constexpr std::string_view kSuffix = ".state";
constexpr std::size_t kDigestLength = 64;
constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 20;
constexpr std::chrono::seconds kPauseAfterFailure{30};
constexpr std::chrono::hours kOldestTemporary{1};
constexpr std::chrono::milliseconds kBetweenListings{500};  // which may take long

std::size_t bytes_of(const SavedState& state) {
  return state.tokens.size() * sizeof(std::int32_t) + kvcache::bytes_of(state.cache);
}

std::string file_name(Sha256 hash, std::size_t length) {
  return fmt::format("{}-{}{}", hash.finish(), length, kSuffix);
}

// The prefix length in a state file's name; nullopt for any other name.
std::optional<std::size_t> length_of(std::string_view name) {
  if (!name.ends_with(kSuffix) || name.size() <= kDigestLength + 1 + kSuffix.size() ||
      name[kDigestLength] != '-') {
    return std::nullopt;
  }
  name.remove_suffix(kSuffix.size());
  name.remove_prefix(kDigestLength + 1);
  std::size_t length = 0;
  const auto [end, code] = std::from_chars(name.begin(), name.end(), length);
  return code == std::errc() && end == name.end() ? std::optional(length) : std::nullopt;
}

struct File {
  fs::file_time_type used;
  std::string name;
  std::size_t bytes;
};

// The current files in the directory. Skips files that other processes remove meanwhile.
std::vector<File> list(const fs::path& directory) {
  std::vector<File> files;
  std::error_code gone;
  for (fs::directory_iterator at(directory, gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code failed;
    const auto bytes = at->file_size(failed);
    const auto used = failed ? fs::file_time_type{} : at->last_write_time(failed);
    if (!failed) {
      files.push_back({used, at->path().filename().string(), static_cast<std::size_t>(bytes)});
    }
  }
  return files;
}

}  // namespace

// A file that is being read, or was read and is still wanted.
struct PrefixStore::Reading {
  std::promise<StatePtr> promise;
  std::shared_future<StatePtr> state = promise.get_future().share();
};

PrefixStore::PrefixStore(fs::path directory, std::size_t max_bytes, StateKind kind, Warn warn)
    : directory_(std::move(directory)),
      max_bytes_(max_bytes),
      kind_(std::move(kind)),
      warn_(std::move(warn)) {
  for (const auto& [name, value] : kind_.description()) {
    kind_text_ += fmt::format("{}={}\n", name, value);
  }
  std::error_code failed;
  if (fs::create_directories(directory_, failed)) {
    fs::permissions(directory_, fs::perms::owner_all, failed);  // states contain prompts
  }
  require(fs::is_directory(directory_), "--cache-dir {}: is not a directory and cannot be made one",
          directory_.string());
  require(::access(directory_.c_str(), W_OK | X_OK) == 0, "--cache-dir {}: cannot be written to",
          directory_.string());
  tidy();
}

PrefixStore::~PrefixStore() {
  flush();
}

void PrefixStore::put(SavedState state) {
  const std::size_t bytes = bytes_of(state);
  {
    const std::lock_guard lock(mutex_);
    const bool too_many = waiting_bytes_ > 0 && waiting_bytes_ + bytes > kMostWaitingBytes;
    if (too_many || bytes > max_bytes_ || std::chrono::steady_clock::now() < writes_again_) {
      ++stats_.dropped;
      return;
    }
    waiting_bytes_ += bytes;
  }
  writer_.run([this, bytes, state = std::make_shared<const SavedState>(std::move(state))] {
    write(*state);
    const std::lock_guard lock(mutex_);
    waiting_bytes_ -= bytes;
  });
}

void PrefixStore::write(const SavedState& state) {
  const std::string name = name_of(state.tokens);
  try {
    std::error_code failed;
    fs::last_write_time(directory_ / name, fs::file_time_type::clock::now(), failed);
    if (failed) {  // the file does not exist yet
      write_state(directory_ / name, kind_, state);
      note_written(name);
    }
    const auto now = std::chrono::steady_clock::now();
    if (stats().bytes > max_bytes_ || now - tidied_ >= kBetweenListings) {
      tidy();
    }
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      ++stats_.dropped;
      writes_again_ = std::chrono::steady_clock::now() + kPauseAfterFailure;
    }
    warn_(fmt::format("{}; no states are written for {} s", error.what(),
                      kPauseAfterFailure.count()));
  }
}

ComingState PrefixStore::find(Tokens prompt, std::size_t known) {
  const std::string name = longest_stored(prompt, known);
  if (name.empty()) {
    const std::lock_guard lock(mutex_);
    ++stats_.misses;
    return {};
  }
  const std::size_t length = *length_of(name);
  auto reading = reading_of(name, prompt.first(length));
  return {.length = length, .state = reading->state, .on_disk = true, .wanted = reading};
}

std::shared_ptr<PrefixStore::Reading> PrefixStore::reading_of(const std::string& name,
                                                              Tokens tokens) {
  const std::lock_guard lock(mutex_);
  std::erase_if(readings_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Reading>& known = readings_[name];
  auto reading = known.lock();
  if (!reading) {
    reading = std::make_shared<Reading>();
    known = reading;
    reader_.run([this, name, wanted = known,
                 tokens = std::vector<std::int32_t>(tokens.begin(), tokens.end())] {
      if (auto still = wanted.lock()) {
        StatePtr state = read(name, tokens);
        std::promise<StatePtr> promise = std::move(still->promise);
        still.reset();  // whoever gets the state may be the last who wants it
        promise.set_value(std::move(state));
      }
    });
  }
  return reading;
}

auto PrefixStore::read(const std::string& name, Tokens tokens) -> StatePtr {
  const fs::path path = directory_ / name;
  std::error_code failed;
  fs::last_write_time(path, fs::file_time_type::clock::now(), failed);
  try {
    std::optional<SavedState> found = find_state(path, kind_);
    if (!found) {  // another process has removed it
      forget(name);
      const std::lock_guard lock(mutex_);
      ++stats_.misses;
      return nullptr;
    }
    require(std::ranges::equal(found->tokens, tokens), "{}: holds other tokens than its name says",
            path.string());
    const std::lock_guard lock(mutex_);
    ++stats_.hits;
    return std::make_shared<const SavedState>(*std::move(found));
  } catch (const std::exception& error) {
    warn_(fmt::format("{}; the file is removed, its tokens are computed again", error.what()));
    fs::remove(path, failed);
    forget(name);
    const std::lock_guard lock(mutex_);
    ++stats_.refused;
    return nullptr;
  }
}

PrefixStoreStats PrefixStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::string PrefixStore::name_of(Tokens tokens) const {
  Sha256 hash;
  hash.update(kind_text_);
  hash.update(std::as_bytes(tokens));
  return file_name(hash, tokens.size());
}

// The name of the longest stored prefix that is longer than `known` and shorter than the prompt;
// empty if there is none.
std::string PrefixStore::longest_stored(Tokens prompt, std::size_t known) const {
  const std::lock_guard lock(mutex_);
  std::string longest;
  Sha256 hash;
  hash.update(kind_text_);
  std::size_t hashed = 0;
  for (auto at = names_.upper_bound(known); at != names_.end() && at->first < prompt.size(); ++at) {
    hash.update(std::as_bytes(prompt.subspan(hashed, at->first - hashed)));
    hashed = at->first;
    std::string name = file_name(hash, hashed);
    if (at->second.contains(name)) {
      longest = std::move(name);
    }
  }
  return longest;
}

void PrefixStore::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = names_.find(length_of(name).value_or(0));
  if (at != names_.end() && at->second.erase(name) > 0 && at->second.empty()) {
    names_.erase(at);
  }
}

void PrefixStore::note_written(const std::string& name) {
  std::error_code failed;
  const auto bytes = fs::file_size(directory_ / name, failed);
  const std::lock_guard lock(mutex_);
  ++stats_.written;
  if (!failed && names_[*length_of(name)].insert(name).second) {
    ++stats_.files;
    stats_.bytes += bytes;
  }
}

// Lists the directory, including files of other processes, and removes files over the limit.
void PrefixStore::tidy() {
  std::vector<File> files = list(directory_);
  const auto now = fs::file_time_type::clock::now();
  std::error_code ignored;
  std::erase_if(files, [&](const File& file) {
    const bool ours = length_of(file.name).has_value();
    // Left unfinished by a process that was killed.
    if (!ours && file.name.find(std::string(kSuffix) + ".tmp") != std::string::npos &&
        now - file.used > kOldestTemporary) {
      fs::remove(directory_ / file.name, ignored);
    }
    return !ours;
  });
  std::ranges::sort(files, std::greater(), &File::used);
  std::size_t bytes = 0;
  std::map<std::size_t, std::set<std::string>> names;
  std::size_t kept = 0;
  bool full = false;  // once a file has no room; one larger than the limit is only removed itself
  for (const File& file : files) {
    full = full || (file.bytes <= max_bytes_ && bytes + file.bytes > max_bytes_);
    if (full || file.bytes > max_bytes_) {
      fs::remove(directory_ / file.name, ignored);
      continue;
    }
    bytes += file.bytes;
    ++kept;
    names[*length_of(file.name)].insert(file.name);
  }
  const std::lock_guard lock(mutex_);
  names_ = std::move(names);
  stats_.files = kept;
  stats_.bytes = bytes;
  tidied_ = std::chrono::steady_clock::now();
}

}  // namespace winnow::engine
