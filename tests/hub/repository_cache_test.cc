#include "hub/repository_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "checkpoint/json.h"
#include "hub/checksum.h"
#include "hub/environment.h"

namespace winnow::hub {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, 'c');

class RepositoryCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "winnow-hub-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    cache_ = pattern;
  }
  void TearDown() override { fs::remove_all(cache_); }

  void write_blob(const std::string& etag, const std::string& text) const {
    repository().make_blob_folder();
    std::ofstream(repository().blob(etag)) << text;
  }
  [[nodiscard]] RepositoryCache repository() const { return {cache_, "org/name"}; }

  fs::path cache_;
};

TEST_F(RepositoryCacheTest, ShowsBlobsAsASnapshot) {
  write_blob("e1", "{}");
  write_blob("e2", "template");
  repository().publish(kCommit, "refs/pr/1",
                       {{"config.json", "e1"}, {"additional_chat_templates/a.jinja", "e2"}});
  EXPECT_EQ(repository().commit_of("refs/pr/1"), kCommit);
  EXPECT_EQ(repository().commit_of("main"), std::nullopt);
  const fs::path snapshot = repository().snapshot(kCommit);
  EXPECT_EQ(fs::read_symlink(snapshot / "config.json"), "../../blobs/e1");
  EXPECT_EQ(read_text_file(snapshot / "additional_chat_templates/a.jinja"), "template");
}

TEST_F(RepositoryCacheTest, AddsToASnapshotThatIsThere) {
  write_blob("e1", "{}");
  write_blob("e2", "{1}");
  repository().publish(kCommit, kCommit, {{"config.json", "e1"}});
  repository().publish(kCommit, kCommit, {{"config.json", "e1"}, {"tokenizer.json", "e2"}});
  EXPECT_EQ(read_text_file(repository().snapshot(kCommit) / "tokenizer.json"), "{1}");
  const auto folder = repository().snapshot(kCommit).parent_path().parent_path();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << "blobs and snapshots alone";
}

TEST_F(RepositoryCacheTest, CompleteMeansThatAModelRuns) {
  const fs::path snapshot = cache_ / "snapshot";
  fs::create_directories(snapshot);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(snapshot / name) << text;
  };
  write("config.json", "{}");
  write("tokenizer.json", "{}");
  EXPECT_FALSE(is_complete(snapshot));
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  write("1.safetensors", "");
  EXPECT_FALSE(is_complete(snapshot));
  write("2.safetensors", "");
  EXPECT_TRUE(is_complete(snapshot));
  fs::remove(snapshot / "tokenizer.json");
  EXPECT_FALSE(is_complete(snapshot));
}

TEST_F(RepositoryCacheTest, LocksExcludeEachOther) {
  const fs::path path = cache_ / ".locks/a.lock";
  {
    const FileLock first(path);
    EXPECT_TRUE(first.holds());
    EXPECT_FALSE(FileLock(path).holds());
    fs::remove(path);  // as some holders do in the end
    EXPECT_TRUE(FileLock(path).holds());
  }
  EXPECT_TRUE(FileLock(path).holds());
}

TEST(Checksum, SaysWhatGitAndSha256sumSay) {
  const auto sum = [](const std::string& etag) {
    Checksum checksum(etag, 5);
    checksum.update(std::as_bytes(std::span("hello", 5)));
    return checksum.finish();
  };
  EXPECT_EQ(sum(std::string(40, '0')), "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0");
  EXPECT_EQ(sum(std::string(64, '0')),
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  EXPECT_FALSE(is_checksum("../../x"));
  EXPECT_FALSE(is_checksum("d41d8cd98f00b204e9800998ecf8427e"));
}

// Each variable as huggingface_hub reads it.
TEST(Environment, TellsWhereTheCacheIs) {
  for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",
                           "HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN",
                           "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    ::unsetenv(name);
  }
  ::setenv("HOME", "/home/me", 1);
  Environment environment = read_environment();
  EXPECT_EQ(environment.endpoint, "https://huggingface.co");
  EXPECT_EQ(environment.cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(environment.token_source, "/home/me/.cache/huggingface/token");
  EXPECT_FALSE(environment.offline);
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(read_environment().cache, "/caches/huggingface/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  ::setenv("HF_TOKEN", " hf_a\n", 1);
  ::setenv("HF_HUB_OFFLINE", "yes", 1);
  ::setenv("HF_ENDPOINT", "https://mirror/", 1);
  environment = read_environment();
  EXPECT_EQ(environment.cache, "/home/me/hf/hub");
  EXPECT_EQ(environment.token, "hf_a");
  EXPECT_EQ(environment.endpoint, "https://mirror");
  EXPECT_TRUE(environment.offline);
  ::setenv("HF_HUB_CACHE", "/blobs", 1);
  EXPECT_EQ(read_environment().cache, "/blobs");
  ::setenv("HF_ENDPOINT", "mirror", 1);
  EXPECT_THROW(read_environment(), Error);
}

}  // namespace
}  // namespace winnow::hub
