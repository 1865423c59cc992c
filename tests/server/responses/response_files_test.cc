// Stored responses as files: what is kept, and what goes when there are too many.
#include "server/responses/response_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

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
    const fs::path path = directory_.path() / (stored_response(i, 0).id + ".json");
    if (fs::exists(path)) {  // file systems may tell times to the second alone
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

}  // namespace
}  // namespace winnow::server
