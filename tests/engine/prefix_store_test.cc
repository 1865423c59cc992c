// States on disk: later readers find them; files that are damaged, in the way or over the limit
// are removed.
#include "engine/prefix_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>

#include "checkpoint/checkpoint_testing.h"
#include "engine/saved_states.h"

namespace winnow::engine {
namespace {

namespace fs = std::filesystem;
using testing::dms_kind;
using testing::dms_state;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kMuch = std::size_t{1} << 30;

std::vector<std::int32_t> counting(int length, int first = 0) {
  std::vector<std::int32_t> tokens;
  for (int t = 0; t < length; ++t) {
    tokens.push_back(first + t);
  }
  return tokens;
}

class Store : public ::testing::Test {
 protected:
  std::unique_ptr<PrefixStore> open(std::size_t max_bytes = kMuch, const std::string& model = "m") {
    return std::make_unique<PrefixStore>(directory_.path() / "states", max_bytes, dms_kind(model),
                                         [this](const std::string& warning) {
                                           const std::lock_guard lock(mutex_);
                                           warnings_.push_back(warning);
                                         });
  }

  /// The length of the state that is found; 0: none.
  static int found(PrefixStore& store, const std::vector<std::int32_t>& tokens,
                   std::size_t known = 0) {
    auto coming = store.find(tokens, known);
    if (coming.length == 0) {
      return 0;
    }
    const auto state = coming.state.get();
    return state ? state->cache.length : 0;
  }

  static void put(PrefixStore& store, SavedState state) {
    store.put(std::move(state));
    store.flush();
  }

  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::directory_iterator(directory_.path() / "states")) {
      result.push_back(entry.path());
    }
    return result;
  }

  TempDir directory_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(Store, FindsTheLongestPrefixAlsoAfterARestart) {
  {
    const auto store = open();
    put(*store, dms_state(20));
    store->put(dms_state(40));
    store->put(dms_state(40, 1000));
  }
  const auto store = open();
  EXPECT_EQ(store->stats().files, 3U);
  EXPECT_EQ(found(*store, counting(100)), 40);
  EXPECT_EQ(found(*store, counting(39)), 20);
  EXPECT_EQ(found(*store, counting(100), 39), 40);
  EXPECT_EQ(found(*store, counting(100), 40), 0);  // nothing longer than what is known
  EXPECT_EQ(found(*store, counting(60, 1000)), 40);
  EXPECT_EQ(found(*store, counting(100, 1)), 0);
  EXPECT_EQ(store->find(counting(40), 20).length, 0U);  // its last token must be computed
  auto coming = store->find(counting(41), 0);
  ASSERT_EQ(coming.length, 40U);
  EXPECT_TRUE(coming.on_disk);
  const auto state = coming.state.get();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->tokens, counting(40));
  EXPECT_EQ(state->cache.entries, dms_state(40).cache.entries);
  EXPECT_EQ(store->stats().hits, 5);
  EXPECT_EQ(store->stats().misses, 3);
  EXPECT_THAT(warnings_, IsEmpty());
}

// As long as any sequence waits for it; then the file is read again.
TEST_F(Store, SequencesShareAReading) {
  const auto store = open();
  put(*store, dms_state(40));
  std::vector<ComingState> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(store->find(counting(50 + i), 0));
  }
  for (const ComingState& coming : all) {
    ASSERT_TRUE(coming.state.get());
    EXPECT_EQ(coming.state.get(), all[0].state.get());
  }
  EXPECT_EQ(store->stats().hits, 1);
  all.clear();
  EXPECT_EQ(found(*store, counting(100)), 40);
  EXPECT_EQ(store->stats().hits, 2);
}

TEST_F(Store, OtherModelsStatesAreNeverFound) {
  const auto mine = open();
  const auto others = open(kMuch, "another model");
  put(*mine, dms_state(40));
  put(*others, dms_state(30));
  EXPECT_EQ(files().size(), 2U);
  EXPECT_EQ(found(*mine, counting(100)), 40);
  EXPECT_EQ(found(*others, counting(100)), 30);
}

TEST_F(Store, WhatWasUsedLeastRecentlyGoes) {
  put(*open(), dms_state(40, 0));
  const std::size_t bytes = fs::file_size(files().front());
  const auto store = open(3 * bytes + bytes / 2);
  const auto age = [&](int hours) {  // ages all files: time stamps may be coarse
    for (const auto& file : files()) {
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(hours));
    }
  };
  for (const int first : {1000, 2000}) {
    age(1);
    put(*store, dms_state(40, first));
  }
  age(1);
  EXPECT_EQ(found(*store, counting(50, 0)), 40);  // now used: 1000 is the oldest
  put(*store, dms_state(40, 3000));
  EXPECT_EQ(store->stats().files, 3U);
  EXPECT_LE(store->stats().bytes, 3 * bytes + bytes / 2);
  EXPECT_EQ(found(*store, counting(50, 1000)), 0);
  for (const int first : {0, 2000, 3000}) {
    EXPECT_EQ(found(*store, counting(50, first)), 40) << first;
  }
  // A state larger than the limit is not written.
  const auto small = open(bytes / 2);
  EXPECT_THAT(files(), IsEmpty());
  put(*small, dms_state(40));
  EXPECT_EQ(small->stats().dropped, 1);
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Store, WhatIsOlderThanOneThatHasNoRoomGoesToo) {
  fs::create_directories(directory_.path() / "states");
  const auto now = fs::file_time_type::clock::now();
  int age = 0;
  for (const int bytes : {2000, 600, 500, 100}) {  // the newest first
    const std::string name = fmt::format("states/{}-{}.state", std::string(64, 'a'), bytes);
    directory_.write(name, std::string(static_cast<std::size_t>(bytes), 'x'));
    fs::last_write_time(directory_.path() / name, now - std::chrono::hours(++age));
  }
  const auto store = open(1000);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(fs::file_size(files().front()), 600U);
  EXPECT_EQ(store->stats().bytes, 600U);
}

TEST_F(Store, DamagedFilesAreRefusedAndRemoved) {
  const auto store = open();
  put(*store, dms_state(40));
  put(*store, dms_state(20));
  for (const auto& file : files()) {
    if (file.filename().string().ends_with("-40.state")) {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(-100, std::ios::end);
      stream.put('!');
    }
  }
  EXPECT_EQ(found(*store, counting(100)), 0);
  EXPECT_EQ(store->stats().refused, 1);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_.front(), HasSubstr("is damaged: its checksum does not match"));
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(found(*store, counting(100)), 20);
  // A valid file under another file's name.
  fs::copy_file(files().front(), directory_.path() / "copy");
  put(*store, dms_state(40, 500));
  for (const auto& file : files()) {
    if (file.filename().string().ends_with("-40.state")) {
      fs::copy_file(directory_.path() / "copy", file, fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_EQ(found(*store, counting(100, 500)), 0);
  EXPECT_THAT(warnings_.back(), HasSubstr("holds other tokens than its name says"));
}

TEST_F(Store, LeavesOtherFilesAlone) {
  fs::create_directories(directory_.path() / "states" / "folder.state");
  directory_.write("states/notes.txt", "mine");
  directory_.write("states/short.state", "mine");
  const std::string name = std::string(64, 'a') + "-12.state";
  directory_.write("states/" + name + ".tmp0123456789abcdef", "half-written, just now");
  directory_.write("states/" + name + ".tmpfedcba9876543210", "half-written, long ago");
  const fs::path old = directory_.path() / ("states/" + name + ".tmpfedcba9876543210");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  const auto store = open(1);
  EXPECT_EQ(files().size(), 4U);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_EQ(store->stats().files, 0U);
}

TEST_F(Store, AFullDiskCostsStatesAndNothingElse) {
  const auto store = open();
  put(*store, dms_state(20));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  put(*store, dms_state(40));
  put(*store, dms_state(41));  // no attempts for a while
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(store->stats().dropped, 2);
  EXPECT_EQ(store->stats().written, 1);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_.front(), HasSubstr("cannot write"));
  EXPECT_EQ(files().size(), 1U);  // no partly written files
  EXPECT_EQ(found(*store, counting(100)), 20);
}

TEST_F(Store, ADirectoryThatCannotBeIsAnError) {
  directory_.write("file", "");
  const auto open_at = [&](const fs::path& path) {
    return error_of([&] { PrefixStore(path, kMuch, dms_kind("m"), [](const std::string&) {}); });
  };
  EXPECT_THAT(open_at(directory_.path() / "file"), HasSubstr("--cache-dir"));
  EXPECT_THAT(open_at(directory_.path() / "file" / "below"), HasSubstr("is not a directory"));
}

// Two processes, here two stores, write, read and remove files in one directory at the same time.
TEST_F(Store, TwoMayShareADirectory) {
  put(*open(), dms_state(40));
  const std::size_t bytes = fs::file_size(files().front());
  const auto work = [&](int seed) {
    const auto store = open(6 * bytes);
    Random random(static_cast<std::uint64_t>(seed));
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random.uniform() * 10.0) * 1000;
      if (random.uniform() < 0.5) {
        store->put(dms_state(40, first));
      } else if (auto coming = store->find(counting(50, first), 0); coming.length > 0) {
        const auto state = coming.state.get();
        if (state) {
          EXPECT_EQ(state->tokens, counting(40, first));
          EXPECT_EQ(state->cache.entries, dms_state(40, first).cache.entries);
        }
      }
    }
    store->flush();
    EXPECT_EQ(store->stats().refused, 0);
    EXPECT_EQ(store->stats().dropped, 0);
  };
  std::thread one(work, 1);
  std::thread two(work, 2);
  one.join();
  two.join();
  EXPECT_THAT(warnings_, IsEmpty());
  const auto store = open(6 * bytes);
  EXPECT_LE(store->stats().files, 6U);
  EXPECT_GT(store->stats().files, 2U);
}

}  // namespace
}  // namespace winnow::engine
