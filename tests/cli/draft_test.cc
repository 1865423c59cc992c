// Speculation: winnow generate and winnow bench with drafts from the text, a model or a head.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "model/head_files.h"
#include "model/mtp_files.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// A prompt that repeats everything, so that drafts are right.
TEST(Generate, SpeculationChangesNoAnswer) {
  const std::string twice = std::string(kPrompt) + "\n" + kPrompt + "\n" + kPrompt + "\nThe quick";
  for (const Words& how : {Words{}, Words{"--temperature", "0.5", "--seed", "3", "--n", "2"},
                           Words{"--stop", " fox"}, Words{"--cache", "h2o", "--cr", "2"}}) {
    Words words{"generate", "--model",   kRetrofitted, "--prompt",     twice,    "--max-tokens",
                "24",       "--threads", "1",          "--ignore-eos", "--json", "--deterministic"};
    words.insert(words.end(), how.begin(), how.end());
    const json plain = run_json(words);
    words.insert(words.end(), {"--speculate", "lookup:5"});
    const json drafted = run_json(words);
    for (const char* key : {"text", "finish_reason", "prompt_tokens"}) {
      EXPECT_EQ(drafted.at(key), plain.at(key));
    }
    EXPECT_FALSE(plain.contains("drafted_tokens"));
    EXPECT_GE(drafted.at("drafted_tokens"), drafted.at("accepted_tokens"));
    EXPECT_GT(drafted.at("accepted_tokens"), 0);
  }
}

TEST(Generate, ADraftModelChangesNoAnswer) {
  for (const Words& how : {Words{}, Words{"--temperature", "0.5", "--seed", "3", "--n", "2"},
                           Words{"--kv-gib", "0.1"}}) {
    Words words{"generate", "--model",   kRetrofitted, "--prompt",     kPrompt,  "--max-tokens",
                "24",       "--threads", "1",          "--ignore-eos", "--json", "--deterministic"};
    words.insert(words.end(), how.begin(), how.end());
    const json plain = run_json(words);
    words.insert(words.end(), {"--draft-model", kRetrofitted, "--speculate", "model:5"});
    const json drafted = run_json(words);
    EXPECT_EQ(drafted.at("text"), plain.at("text"));
    EXPECT_GT(drafted.at("accepted_tokens"), 0);
    if (how.empty()) {  // a model agrees with itself
      EXPECT_EQ(drafted.at("accepted_tokens"), drafted.at("drafted_tokens"));
    }
  }
}

TEST(Generate, ADraftModelIsRefusedByName) {
  const auto error = [](Words more) {
    Words words{"generate", "--model", kBase, "--prompt", "x", "--draft-model", kBase};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  EXPECT_THAT(error({"--speculate", "lookup"}), HasSubstr("--speculate lookup: excludes"));
  EXPECT_THAT(error({"--tensor-parallel", "2"}), HasSubstr("runs on one rank only"));
  EXPECT_THAT(error({"--kv-gib", "0.0002"}), HasSubstr("with --draft-model it has no room"));
}

// A random head of EAGLE-3 for the models in assets/, which lend it their embeddings.
HeadFiles head_for_assets() {
  HeadFiles head = random_head({.hidden = 384,
                                .heads = 6,
                                .kv_heads = 2,
                                .head_dim = 64,
                                .intermediate = 256,
                                .vocab = 8192,
                                .draft_vocab = 1000,
                                .target_hidden = 384},
                               {2, 4, 5});
  head.config.erase("eagle_aux_hidden_state_layer_ids");  // these are what heads take without it
  head.tensors.erase("embed_tokens.weight");
  return head;
}

TEST(Generate, AHeadThatDraftsChangesNoAnswer) {
  const TempDirectory directory;
  head_for_assets().write(directory.path());
  for (const Words& how : {Words{}, Words{"--temperature", "0.5", "--seed", "3", "--n", "2"},
                           Words{"--weights", "int8", "--kv-gib", "0.1"}}) {
    Words words{"generate", "--model",   kRetrofitted, "--prompt",     kPrompt,  "--max-tokens",
                "24",       "--threads", "1",          "--ignore-eos", "--json", "--deterministic"};
    words.insert(words.end(), how.begin(), how.end());
    const json plain = run_json(words);
    words.insert(words.end(), {"--draft-model", directory.path().string()});
    const json drafted = run_json(words);
    EXPECT_EQ(drafted.at("text"), plain.at("text"));
    EXPECT_GT(drafted.at("drafted_tokens"), 0);
  }
}

TEST(Generate, AHeadThatDraftsIsRefusedByName) {
  const TempDirectory directory;
  const std::string path = directory.path().string();
  const auto error = [&](const HeadFiles& head, Words more) {
    head.write(directory.path());
    Words words{"generate", "--prompt", "x"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  const Words drafting{"--model", kBase, "--draft-model", path};
  const HeadFiles head = head_for_assets();
  EXPECT_THAT(error(head, {"--model", path}), HasSubstr("give it to --draft-model"));
  EXPECT_THAT(error(head, {"--model", kBase, "--draft-model", path, "--tensor-parallel", "2"}),
              HasSubstr("runs on one rank only"));
  EXPECT_THAT(error(random_head(), drafting), HasSubstr("hidden_size 32, the model's is 384"));
  HeadFiles incomplete = head;
  incomplete.tensors.erase("midlayer.self_attn.k_proj.weight");
  EXPECT_THAT(
      error(incomplete, drafting),
      HasSubstr("model.safetensors: tensor \"midlayer.self_attn.k_proj.weight\" is missing"));
}

// A random model with recurrent layers and an MTP layer, for the tokens of the models in assets/.
void write_mtp_model(const std::filesystem::path& directory) {
  MtpFamily family = mtp_family("qwen3_5_text");
  family.keys["linear_value_head_dim"] = 8;  // int8 takes multiples of 32 columns
  MtpFiles(family, {.hidden = 64, .intermediate = 64, .vocab = 8192}).write(directory);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(std::filesystem::path(WINNOW_SOURCE_DIR) / kBase / name,
                               directory / name);
  }
}

TEST(Generate, AnMtpLayerChangesNoAnswer) {
  const TempDirectory directory;
  write_mtp_model(directory.path());
  for (const Words& how :
       {Words{}, Words{"--temperature", "0.5", "--seed", "3", "--n", "2"},
        Words{"--weights", "int8", "--kv-gib", "0.1"}, Words{"--cache", "h2o", "--cr", "2"}}) {
    Words words{"generate", "--model",      directory.path().string(),
                "--prompt", kPrompt,        "--max-tokens",
                "24",       "--threads",    "1",
                "--json",   "--ignore-eos", "--deterministic"};
    words.insert(words.end(), how.begin(), how.end());
    const json plain = run_json(words);
    words.insert(words.end(), {"--speculate", "mtp:3"});
    const json drafted = run_json(words);
    EXPECT_EQ(drafted.at("text"), plain.at("text"));
    EXPECT_GT(drafted.at("drafted_tokens"), 0);
  }
}

TEST(Generate, AnMtpLayerIsRefusedByName) {
  const auto error = [](Words more) {
    Words words{"generate", "--prompt", "x", "--speculate", "mtp"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  EXPECT_THAT(error({"--model", kBase}), HasSubstr("have no MTP layers that winnow knows"));
  EXPECT_THAT(error({"--model", "tests/fixtures/models/qwen3.5"}),
              HasSubstr("the files have no MTP layer: no tensor's name begins with \"mtp.\""));
  const TempDirectory directory;
  write_mtp_model(directory.path());
  const std::string path = directory.path().string();
  EXPECT_THAT(error({"--model", path, "--tensor-parallel", "2"}),
              HasSubstr("--speculate mtp with --tensor-parallel: runs on one rank only"));
  EXPECT_THAT(error({"--model", path, "--draft-model", kBase}),
              HasSubstr("--speculate mtp: excludes --draft-model"));
  EXPECT_THAT(error({"--model", path, "--kv-gib", "0.000003"}),
              HasSubstr("with --speculate mtp it has no room"));
}

TEST(Bench, MeasuresTheDraftsOfAnMtpLayer) {
  const TempDirectory directory;
  write_mtp_model(directory.path());
  const json result =
      run_json({"bench", "--model", directory.path().string(), "--depth", "64", "--generate", "4",
                "--repeat", "2", "--threads", "1", "--json", "--speculate", "mtp:3"});
  EXPECT_EQ(result.at("drafted"), 3);
  EXPECT_EQ(result.at("draft_model"), "mtp");
  EXPECT_EQ(result.at("draft_runs").size(), 2U);
  const CommandResult shape =
      run_winnow({"bench", "--shape", "smollm2-135m", "--speculate", "mtp"});
  EXPECT_EQ(shape.code, 1);
  EXPECT_THAT(shape.err, HasSubstr("--speculate mtp: needs --model"));
}

TEST(Bench, MeasuresAStepThatVerifiesADraft) {
  const json result =
      run_json({"bench", "--model", kRetrofitted, "--depth", "64", "--generate", "4", "--repeat",
                "2", "--threads", "1", "--json", "--speculate", "lookup:3"});
  EXPECT_EQ(result.at("drafted"), 3);
  EXPECT_EQ(result.at("verify_runs").size(), 2U);
  EXPECT_GT(result.at("verify_steps_per_s"), 0);
}

TEST(Bench, MeasuresTheDraftsOfAModel) {
  const json result =
      run_json({"bench", "--model", kRetrofitted, "--depth", "64", "--generate", "4", "--repeat",
                "2", "--threads", "1", "--json", "--speculate", "model:3", "--draft-model", kBase});
  EXPECT_EQ(result.at("drafted"), 3);
  EXPECT_EQ(result.at("draft_model"), kBase);
  EXPECT_EQ(result.at("draft_runs").size(), 2U);
  EXPECT_GT(result.at("drafts_per_s"), 0);
  const json load = run_json({"bench", "--model", kRetrofitted, "--draft-model", kRetrofitted,
                              "--load", "40/40", "--requests", "3", "--threads", "1", "--json"});
  EXPECT_GT(load.at("accepted_tokens"), 0);
  EXPECT_GT(load.at("steps").at("draft_seconds"), 0);
}

TEST(Bench, MeasuresTheDraftsOfAHead) {
  const TempDirectory directory;
  head_for_assets().write(directory.path());
  const std::string path = directory.path().string();
  const json result =
      run_json({"bench", "--model", kRetrofitted, "--depth", "64", "--generate", "4", "--repeat",
                "2", "--threads", "1", "--json", "--speculate", "model:3", "--draft-model", path});
  EXPECT_EQ(result.at("drafted"), 3);
  EXPECT_EQ(result.at("draft_runs").size(), 2U);
  EXPECT_GT(result.at("drafts_per_s"), 0);
}

}  // namespace
}  // namespace winnow::testing
