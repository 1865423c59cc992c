// Stored responses as files: what is kept, and what is deleted when there are too many.
#include "server/responses/response_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_testing.h"
#include "server/responses/response_store.h"

namespace winnow::server {
namespace {

namespace fs = std::filesystem;

StoredResponse stored_response(int number, std::size_t bytes) {
  return {fmt::format("resp_{:032x}", number), {{"number", number}}, std::string(bytes, 'x'), {}};
}

class ResponseFilesTest : public ::testing::Test {
 protected:
  static void expect_no_warning(const std::string& text) { ADD_FAILURE() << text; }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_.path())) {
      sum += entry.file_size();
    }
    return sum;
  }

  TempDir directory_;
};

TEST_F(ResponseFilesTest, AreFoundByTheirIdAlone) {
  ResponseFiles files(directory_.path(), 1 << 20, expect_no_warning);
  files.put(stored_response(1, 10));
  ASSERT_TRUE(files.find(stored_response(1, 0).id));
  EXPECT_EQ(files.find(stored_response(1, 0).id)->response.at("number"), 1);
  EXPECT_FALSE(files.find(stored_response(2, 0).id));
  EXPECT_FALSE(files.find("../" + stored_response(1, 0).id));
  EXPECT_TRUE(files.erase(stored_response(1, 0).id));
  EXPECT_FALSE(files.erase(stored_response(1, 0).id));
}

TEST_F(ResponseFilesTest, TheOldestGoFirst) {
  constexpr std::size_t kMost = 64 << 10;
  ResponseFiles files(directory_.path(), kMost, expect_no_warning);
  for (int i = 0; i < 100; ++i) {
    files.put(stored_response(i, 1000));
    files.flush();
    const fs::path path = directory_.path() / (stored_response(i, 0).id + ".json");
    if (fs::exists(path)) {  // file systems may store times in whole seconds
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(200 - i));
    }
    EXPECT_LE(bytes(), kMost + kMost / 16 + 2000) << i;
  }
  EXPECT_FALSE(files.find(stored_response(0, 0).id));
  EXPECT_TRUE(files.find(stored_response(99, 0).id));
  EXPECT_GT(bytes(), kMost / 2);
  const ResponseFiles smaller(directory_.path(), 10'000, expect_no_warning);
  EXPECT_LE(bytes(), 10'000U);
}

// Response 0 is written to a pipe, which accepts a part, and the rest once somebody reads.
class SlowDiskTest : public ResponseFilesTest {
 protected:
  static constexpr std::size_t kFirst = 100'000;  // more than a pipe holds

  SlowDiskTest() {
    require_system(::mkfifo(path_of(0).c_str(), 0600) == 0, "{}", path_of(0).string());
    pipe_ = ::open(path_of(0).c_str(), O_RDONLY | O_NONBLOCK);
    require_system(pipe_ >= 0, "{}", path_of(0).string());
  }
  ~SlowDiskTest() override { ::close(pipe_); }
  SlowDiskTest(const SlowDiskTest&) = delete;
  SlowDiskTest& operator=(const SlowDiskTest&) = delete;

  [[nodiscard]] fs::path path_of(int number) const {
    return directory_.path() / (stored_response(number, 0).id + ".json");
  }
  // Returns while response 0 is being written.
  void put_first(ResponseFiles& files) const {
    files.put(stored_response(0, kFirst));
    pollfd begun{pipe_, POLLIN, 0};
    require_system(::poll(&begun, 1, 60'000) == 1, "nothing is written");
  }
  // Reads all of response 0.
  [[nodiscard]] std::string let_it_write() const {
    require_system(::fcntl(pipe_, F_SETFL, 0) == 0, "{}", path_of(0).string());
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t count = 1; count > 0; text.append(part.data(), static_cast<std::size_t>(count))) {
      count = ::read(pipe_, part.data(), part.size());
      require_system(count >= 0, "{}", path_of(0).string());
    }
    return text;
  }

 private:
  int pipe_ = -1;
};

TEST_F(SlowDiskTest, AResponseIsFoundBeforeItIsWritten) {
  ResponseFiles files(directory_.path(), 1 << 24, expect_no_warning);
  put_first(files);
  files.put(stored_response(1, 10));
  for (int i = 0; i < 2; ++i) {
    const auto found = files.find(stored_response(i, 0).id);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->response.at("number"), i);
    EXPECT_EQ(found->input, std::string(i == 0 ? kFirst : 10, 'x'));
  }
  EXPECT_FALSE(fs::exists(path_of(1)));
  EXPECT_NE(let_it_write().find("\"number\":0"), std::string::npos);
  files.flush();
  EXPECT_TRUE(fs::is_regular_file(path_of(1)));
  EXPECT_TRUE(files.find(stored_response(1, 0).id));
}

TEST_F(SlowDiskTest, WhatIsErasedBeforeItIsWrittenStaysErased) {
  ResponseFiles files(directory_.path(), 1 << 24, expect_no_warning);
  put_first(files);
  files.put(stored_response(1, 10));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(files.erase(stored_response(i, 0).id)) << i;
    EXPECT_FALSE(files.erase(stored_response(i, 0).id)) << i;
    EXPECT_FALSE(files.find(stored_response(i, 0).id)) << i;
  }
  EXPECT_FALSE(let_it_write().empty());
  files.flush();
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(SlowDiskTest, NotAllWait) {
  std::vector<std::string> warnings;
  // Three responses of 1,000 bytes may wait in addition to the first.
  ResponseFiles files(directory_.path(), 16 * (kFirst + 4000),
                      [&](const std::string& text) { warnings.push_back(text); });
  put_first(files);
  for (int i = 1; i < 6; ++i) {
    files.put(stored_response(i, 1000));
  }
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_EQ(warnings[0], path_of(4).string() + ": not written: too many wait for the disk");
  EXPECT_TRUE(files.find(stored_response(3, 0).id));
  EXPECT_FALSE(files.find(stored_response(4, 0).id));
  EXPECT_FALSE(let_it_write().empty());
  files.flush();
  files.put(stored_response(4, 1000));
  EXPECT_TRUE(files.find(stored_response(4, 0).id));
}

TEST_F(SlowDiskTest, AllAreWrittenInTheEnd) {
  {
    ResponseFiles files(directory_.path(), 1 << 24, expect_no_warning);
    put_first(files);
    files.put(stored_response(1, 10));
    EXPECT_FALSE(let_it_write().empty());
  }
  EXPECT_TRUE(fs::is_regular_file(path_of(1)));
}

TEST_F(ResponseFilesTest, AFullDiskIsNamed) {
  std::vector<std::string> warnings;
  ResponseFiles files(directory_.path(), 1 << 20,
                      [&](const std::string& text) { warnings.push_back(text); });
  const std::string id = stored_response(1, 0).id;
  fs::create_symlink("/dev/full", directory_.path() / (id + ".json"));
  files.put(stored_response(1, 10));
  files.flush();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "/dev/full: cannot write: No space left on device");
}

}  // namespace
}  // namespace winnow::server
