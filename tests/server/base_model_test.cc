#include "server/base_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_testing.h"

namespace winnow::server {
namespace {

// Whether an adapter for `base` may be for the model in a folder `path` below a new one.
bool fits(const std::string& base, const std::string& path,
          const std::vector<std::string>& other_names = {}) {
  const TempDir directory;
  const std::filesystem::path model = directory.path() / path;
  std::filesystem::create_directories(model);
  return may_be_model(base, model, other_names);
}

TEST(BaseModel, IsKnownByNameAndFolder) {
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "Qwen3-8B"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "qwen3_8b/"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "Qwen_Qwen3-8B")) << "as download tools name folders";
  EXPECT_TRUE(fits("/home/me/models/Qwen3-8B/", "Qwen3-8B"));
  EXPECT_TRUE(fits("C:\\models\\Qwen3-8B", "Qwen3-8B"));
  EXPECT_TRUE(fits("/x/hub/models--Qwen--Qwen3-8B/snapshots/0123", "Qwen3-8B"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "models--Qwen--Qwen3-8B/snapshots/0123"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "models--unsloth--Qwen3-8B/snapshots/0123"));
}

TEST(BaseModel, IsTheSameInAnotherFormat) {
  EXPECT_TRUE(fits("unsloth/Qwen3-8B-unsloth-bnb-4bit", "Qwen3-8B"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "Qwen3-8B-AWQ"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "Qwen3-8B-DMS-8x"));
  EXPECT_TRUE(fits("meta-llama/Llama-2-7b-hf", "llama-2-7b"));
  EXPECT_TRUE(fits("meta-llama/Llama-3.1-8B", "Meta-Llama-3.1-8B"));
}

TEST(BaseModel, IsKnownByOtherNames) {
  EXPECT_FALSE(fits("Qwen/Qwen3-8B", "final"));
  EXPECT_TRUE(fits("Qwen/Qwen3-8B", "final", {"", "Qwen/Qwen3-8B"}));
}

TEST(BaseModel, OfAGgufFileIsInItsNameOrItsFolders) {
  const TempDir directory;
  const std::filesystem::path folder = directory.path() / "Llama-3.2-1B";
  std::filesystem::create_directories(folder);
  directory.write("Llama-3.2-1B/ggml-model-f16.gguf", "");
  directory.write("Qwen3-8B-Q4_K_M.gguf", "");
  EXPECT_TRUE(may_be_model("meta-llama/Llama-3.2-1B", folder / "ggml-model-f16.gguf", {}));
  EXPECT_TRUE(may_be_model("Qwen/Qwen3-8B", directory.path() / "Qwen3-8B-Q4_K_M.gguf", {}));
  EXPECT_FALSE(may_be_model("Qwen/Qwen3-4B", directory.path() / "Qwen3-8B-Q4_K_M.gguf", {}));
}

TEST(BaseModel, AnotherOneDiffers) {
  EXPECT_FALSE(fits("Qwen/Qwen3-8B", "Llama-3.1-8B"));
  EXPECT_FALSE(fits("Qwen/Qwen3-8B-Base", "Qwen3-8B"));
  EXPECT_FALSE(fits("meta-llama/Llama-3.1-8B", "Llama-3.1-8B-Instruct"));
  EXPECT_FALSE(fits("meta-llama/Llama-3.1-8B", "DeepSeek-R1-Distill-Llama-8B"));
  EXPECT_FALSE(fits("Qwen/Qwen3-8B", "models--Qwen--Qwen3-4B/snapshots/0123"));
  EXPECT_FALSE(fits("/runs/checkpoint-500", "Qwen3-8B"));
}

TEST(BaseModel, ThatIsNotNamedMayBeAny) {
  EXPECT_TRUE(fits("", "Qwen3-8B"));
}

TEST(BaseModel, IsTheSameFolder) {
  const TempDir directory;
  EXPECT_TRUE(may_be_model(directory.path().string() + "/.", directory.path(), {}));
}

}  // namespace
}  // namespace winnow::server
