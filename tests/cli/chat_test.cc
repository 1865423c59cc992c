// winnow chat, on a terminal and without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "cli/run_command.h"
#include "cli/terminal.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

Words chat_words(const Words& more = {}, const std::string& max_tokens = "24",
                 const std::string& history = "none") {
  Words words{"chat",      "--model", "assets/dms-cr8", "--threads", "1",
              "--history", history,   "--max-tokens",   max_tokens};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

constexpr const char* kEnter = "\r";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";
constexpr const char* kUp = "\x1b[A";
constexpr const char* kAltEnter = "\x1b\r";
constexpr const char* kAnswered = "tokens/s]";
constexpr const char* kAsks = "> ";

class ChatOnATerminal : public ::testing::Test {
 protected:
  // Types a line at the prompt and waits for the answer.
  static void expect(Terminal& chat, const std::string& line, const std::string& answer) {
    ASSERT_TRUE(chat.await(kAsks)) << chat.transcript();
    chat.type(line + kEnter);
    ASSERT_TRUE(chat.await(answer)) << line << ": " << chat.transcript();
  }
  // The messages that /save writes.
  [[nodiscard]] json saved(Terminal& chat) const {
    const std::string file = directory_.file("saved.json");
    expect(chat, "/save " + file, "questions and answers");
    return json::parse(read_text(file)).at("messages");
  }

  TempDirectory directory_;
};

TEST_F(ChatOnATerminal, AnswersAndKeepsTheCacheOfEarlierTurns) {
  Terminal chat(chat_words({"--system",
                            "You are a clerk who knows where the offices of the "
                            "company are and what their secret codes are."}));
  expect(chat, "What is the secret code of the Lisbon office?", kAnswered);
  EXPECT_THAT(chat.transcript(), Not(HasSubstr("from the cache")));
  expect(chat, "And the one of Porto?", "prompt tokens from the cache");
  expect(chat, "/stats", "entries that each head holds");
  const json messages = saved(chat);
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[3], (json{{"role", "user"}, {"content", "And the one of Porto?"}}));
  expect(chat, "/retry", "prompt tokens from the cache");
  expect(chat, "/undo", "forgotten: \"And the one of Porto?\"");
  EXPECT_EQ(saved(chat).size(), 3U);
  expect(chat, "/quit", "");
  EXPECT_EQ(chat.wait(), 0);
}

TEST_F(ChatOnATerminal, LoadsWhatItSaved) {
  Terminal chat(chat_words());
  expect(chat, "Hello", kAnswered);
  const json messages = saved(chat);
  expect(chat, "/clear", "a new chat begins");
  EXPECT_EQ(saved(chat).size(), 0U);
  const std::string file = directory_.write("first.json", json{{"messages", messages}}.dump());
  expect(chat, "/load " + file, "questions and answers: 1");
  EXPECT_EQ(saved(chat), messages);
  const std::string bad = directory_.write("bad.json", R"([{"role": "assistant", "content": ""}])");
  expect(chat, "/load " + bad, "bad.json: a message of the assistant where the user's turn is");
  EXPECT_EQ(saved(chat), messages);
  expect(chat, "/system Be brief.", "a new chat begins, under this system message");
  EXPECT_EQ(saved(chat).front().at("role"), "system");
}

TEST_F(ChatOnATerminal, ReadsAFileAsAMessage) {
  Terminal chat(chat_words());
  const std::string file = directory_.write("notes.txt", "The code is 7.\nIt rains.\n");
  expect(chat, "/read " + file + " What is the code?", kAnswered);
  const std::string blank = directory_.write("my notes.txt", "It snows.");
  expect(chat, "/read " + file, kAnswered);
  expect(chat, "/read \"" + blank + "\" Does it?", kAnswered);
  const json messages = saved(chat);
  EXPECT_EQ(messages[0].at("content"), "The code is 7.\nIt rains.\n\n\nWhat is the code?");
  EXPECT_EQ(messages[2].at("content"), "The code is 7.\nIt rains.\n");
  EXPECT_EQ(messages[4].at("content"), "It snows.\n\nDoes it?");
}

TEST_F(ChatOnATerminal, ShowsTheCacheBelowTheAnswer) {
  Terminal chat(chat_words());
  expect(chat, "Hello", kAnswered);
  EXPECT_THAT(chat.transcript(), HasSubstr("\x1b[1;23r"));  // the last line stays
  EXPECT_THAT(chat.transcript(), HasSubstr("when dense"));
  EXPECT_THAT(chat.transcript(), HasSubstr("\x1b[r"));  // and is released
}

// The longest text between a newline or an escape sequence and the next.
std::size_t longest_line(const std::string& transcript) {
  const std::regex escape("\x1b(\\[[0-9;?]*[A-Za-z]|.)");
  std::size_t longest = 0;
  std::size_t columns = 0;
  for (const char c : std::regex_replace(transcript, escape, "\n")) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    columns = c == '\n' || c == '\r' ? 0 : columns + (continues ? 0 : 1);
    longest = std::max(longest, columns);
  }
  return longest;
}

TEST_F(ChatOnATerminal, ItsOwnLinesFitTheTerminal) {
  Terminal chat(chat_words({"--temperature", "0"}, "4"), {.columns = 70});
  expect(chat, "Hi", kAnswered);
  EXPECT_THAT(chat.transcript(), HasSubstr("the window of 64 tokens is not full"));
  expect(chat, "Ho", kAnswered);
  const std::string& all = chat.transcript();
  EXPECT_THAT(all, HasSubstr("\r\n "));  // the summary continues in a second line
  EXPECT_LE(longest_line(all.substr(all.find("> "))), 70U) << all;
}

TEST_F(ChatOnATerminal, WritesPlainAsciiWhereNothingElseIsShown) {
  for (const TerminalKind& kind : {TerminalKind{.term = "dumb"}, TerminalKind{.locale = "C"}}) {
    Terminal chat(chat_words({}, "4"), kind);
    expect(chat, "Hi", kAnswered);
    const std::string& all = chat.transcript();
    EXPECT_THAT(all, Not(HasSubstr("▏"))) << kind.term;
    EXPECT_THAT(all, Not(HasSubstr("·"))) << kind.term;
    if (kind.term == "dumb") {
      EXPECT_THAT(all, Not(HasSubstr("[?2004h")));
    }
  }
}

TEST(Chat, SaysThatItFillsTheModelsPositions) {
  std::string sea = "Repeat:";
  for (int i = 0; i < 3900; ++i) {
    sea += " sea";
  }
  const CommandResult full =
      run_winnow(chat_words({"--temperature", "0"}, "4000"), sea + "\nGo on.\n");
  EXPECT_THAT(full.err, HasSubstr("the chat fills the model's 4,096 positions: /undo, or /clear"));
  EXPECT_THAT(full.err, Not(HasSubstr("cut off")));
  EXPECT_THAT(full.err, HasSubstr("send less, /undo the answer before, or /clear the chat"));
}

TEST_F(ChatOnATerminal, CtrlCEndsTheAnswerAndNotTheChat) {
  Terminal chat(chat_words({"--temperature", "0"}, "4000"));  // it would use all of them
  expect(
      chat,
      "Tell me a long story of a captain who goes below to his cabin, of his men who stand on the "
      "deck, and of the lights in the water that follow their ship.",
      "when dense");  // the status of a running answer
  chat.type(kCtrlC);
  ASSERT_TRUE(chat.await(kAnswered)) << chat.transcript();
  EXPECT_THAT(chat.transcript(), Not(HasSubstr("cut off")));
  expect(chat, "/set max-tokens 4", "");
  expect(chat, "Go on.", "prompt tokens from the cache");
  ASSERT_TRUE(chat.await("winnow: cut off at 4 tokens; /set max-tokens 8 allows more"));
  ASSERT_TRUE(chat.await(kAsks));
  chat.type("never sent");
  ASSERT_TRUE(chat.await("never sent"));
  chat.type(kCtrlC);
  EXPECT_EQ(saved(chat).size(), 4U);
  ASSERT_TRUE(chat.await(kAsks));
  chat.type(kCtrlD);
  EXPECT_EQ(chat.wait(), 0);
}

// A model that takes seconds to quantise: its weights are the zeros of a file without blocks.
void write_slow_model(const TempDirectory& directory) {
  const std::filesystem::path source = std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/base";
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::create_symlink(source / file, directory.file(file));
  }
  constexpr int kLayers = 64;
  constexpr int kWidth = 2048;
  json config = json::parse(read_text(source / "config.json"));
  config.update({{"num_hidden_layers", kLayers},
                 {"hidden_size", kWidth},
                 {"intermediate_size", 4 * kWidth},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 32}});
  static_cast<void>(directory.write("config.json", config.dump()));
  std::size_t end = 0;
  json header;
  const auto add = [&](const std::string& name, const std::vector<int>& shape) {
    std::size_t bytes = 2;
    for (const int size : shape) {
      bytes *= static_cast<std::size_t>(size);
    }
    header[name + ".weight"] = {
        {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("model.embed_tokens", {config.at("vocab_size").get<int>(), kWidth});
  add("model.norm", {kWidth});
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm", {kWidth});
    add(layer + "post_attention_layernorm", {kWidth});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(layer + "self_attn." + name, {kWidth, kWidth});
    }
    add(layer + "mlp.gate_proj", {4 * kWidth, kWidth});
    add(layer + "mlp.up_proj", {4 * kWidth, kWidth});
    add(layer + "mlp.down_proj", {kWidth, 4 * kWidth});
  }
  std::string text = header.dump();
  text.resize((text.size() + 63) / 64 * 64, ' ');  // aligned, so that nothing is copied
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(text.size() >> (8 * i));
  }
  const std::string file = directory.write("model.safetensors", length + text);
  std::filesystem::resize_file(file, length.size() + text.size() + end);
}

TEST(Chat, OneCtrlCEndsItWhileTheModelLoads) {
  const TempDirectory model;
  write_slow_model(model);
  Terminal chat(
      {"chat", "--model", model.path().string(), "--weights", "int4", "--history", "none"});
  ASSERT_TRUE(chat.await("loading: ")) << chat.transcript();
  ASSERT_TRUE(chat.await(" of 64 layers")) << chat.transcript();
  chat.type(kCtrlC);
  EXPECT_EQ(chat.wait(), 130) << chat.transcript();
  EXPECT_THAT(chat.transcript(), Not(HasSubstr("/help")));
}

TEST_F(ChatOnATerminal, TakesMessagesOfSeveralLines) {
  Terminal chat(chat_words({}, "2"));
  expect(chat, "one\\", "… ");
  chat.type(std::string("two") + kEnter);
  ASSERT_TRUE(chat.await(kAnswered)) << chat.transcript();
  EXPECT_EQ(saved(chat).at(0).at("content"), "one\ntwo");
  expect(chat, std::string("three") + kAltEnter + "four", kAnswered);
  EXPECT_EQ(saved(chat).at(2).at("content"), "three\nfour");
  expect(chat, "\x1b[200~five\r\tsix\x1b[201~ seven", kAnswered);
  EXPECT_EQ(saved(chat).at(4).at("content"), "five\n\tsix seven");
}

TEST_F(ChatOnATerminal, RemembersWhatWasTyped) {
  const Words words = chat_words({}, "2", directory_.file("history"));
  Terminal first(words);
  expect(first, "Grüße", kAnswered);
  expect(first, "/quit", "");
  EXPECT_EQ(first.wait(), 0);

  Terminal second(words);
  expect(second, std::string(kUp) + kUp, kAnswered);  // before /quit
  EXPECT_EQ(saved(second).at(0).at("content"), "Grüße");
}

TEST_F(ChatOnATerminal, TabCompletesCommands) {
  Terminal chat(chat_words());
  expect(chat, "/se\t top-k 5", "");
  expect(chat, "/set", "top-k                5");
}

TEST(Chat, WithoutATerminalEveryLineIsAMessage) {
  const CommandResult result = run_winnow(
      chat_words(), "Hello\n/set temperature 2 3\n/set top-k 5\n/set\n/nothing\n/help\n");
  EXPECT_EQ(result.code, 1);  // some failed
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.out, HasSubstr("top-k                5"));
  EXPECT_THAT(result.out, HasSubstr("/retry"));
  EXPECT_THAT(result.err, HasSubstr(kAnswered));
  EXPECT_THAT(result.err, HasSubstr("/set temperature: expected a number, found \"2 3\""));
  EXPECT_THAT(result.err, HasSubstr("/nothing: no such command"));
}

TEST(Chat, WithoutATerminalAMessageWithoutAnAnswerEndsIt) {
  const std::string too_long(100'000, 'x');
  const CommandResult result =
      run_winnow(chat_words(), "Hello\n" + too_long + "\n" + too_long + "\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the chat would have"));
  EXPECT_EQ(result.err.find("the chat would have"), result.err.rfind("the chat would have"));
}

TEST(Chat, SaysThatAnAnswerWasCutOff) {
  const CommandResult result =
      run_winnow(chat_words({"--temperature", "0"}, "3"), "Hello\n/bye\nmore\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("cut off at 3 tokens; --max-tokens 6 allows more"));
  EXPECT_EQ(result.err.find("cut off"), result.err.rfind("cut off")) << "/bye ends the chat";
}

TEST(Chat, RefusesNumbersBeforeItLoadsTheModel) {
  const TempDirectory model;  // without weights
  static_cast<void>(model.write("config.json", "{}"));
  for (const auto& [flag, value, problem] :
       {std::tuple("--temperature", "-1", "temperature -1 is not a number from 0 up"),
        std::tuple("--top-p", "7", "top-p 7 is not in (0, 1]"),
        std::tuple("--max-tokens", "0", "--max-tokens 0: expected 1 or more")}) {
    const CommandResult result =
        run_winnow({"chat", "--model", model.path().string(), flag, value});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr(problem));
  }
}

TEST(Chat, RefusesWhatItCannotDo) {
  const CommandResult result = run_winnow(chat_words(),
                                          "/retry\n/undo\n/stats\n/save\n/clear all\n/set "
                                          "max-tokens 0\n/set x 1\n/read no/file\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  for (const char* message :
       {"/retry: there is no message yet", "/undo: there is no message yet",
        "/stats: there is no answer yet", "/save: a file is missing",
        "/clear: takes nothing, found \"all\"", "/set max-tokens 0: expected 1 or more",
        "/set x: no such setting", "no/file"}) {
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

// A model without a chat template.
void link_base(const TempDirectory& model) {
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::create_symlink(std::string(WINNOW_SOURCE_DIR "/assets/base/") + file,
                                    model.file(file));
  }
}

TEST(Chat, AModelWithoutTemplateIsRefusedAtOnce) {
  const TempDirectory model;
  link_base(model);
  const CommandResult result = run_winnow({"chat", "--model", model.path().string()}, "Hello\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no chat template"));
}

TEST(Chat, AModelWithoutTokenizerIsRefusedAtOnce) {
  const TempDirectory model;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(std::string(WINNOW_SOURCE_DIR "/assets/base/") + file,
                                    model.file(file));
  }
  static_cast<void>(model.write("chat_template.jinja", "{{ messages[-1].content }}"));
  const CommandResult result = run_winnow({"chat", "--model", model.path().string()}, "");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("tokenizer.json"));
}

// A model whose template can switch thinking off by a variable of this name.
void write_thinker(const TempDirectory& model, const std::string& name) {
  link_base(model);
  static_cast<void>(model.write("chat_template.jinja",
                                "{{ messages[-1].content }}{% if " + name + " is defined and not " +
                                    name + " %} These are five more words.{% endif %}"));
}

TEST(Chat, NoThinkSwitchesThinkingOff) {
  for (const char* name : {"enable_thinking", "thinking"}) {
    const TempDirectory model;
    write_thinker(model, name);
    const auto prompt_tokens = [&](const Words& more) {
      Words words{"generate", "--model",  model.path().string(), "--chat", "--json",
                  "--prompt", "My words", "--threads",           "1",      "--max-tokens",
                  "1"};
      words.insert(words.end(), more.begin(), more.end());
      return json::parse(run_winnow(words).out).at("prompt_tokens").get<int>();
    };
    EXPECT_GT(prompt_tokens({"--no-think"}), prompt_tokens({}) + 4) << name;
    const CommandResult chat =
        run_winnow({"chat", "--model", model.path().string(), "--history", "none", "--no-think",
                    "--max-tokens", "1", "--threads", "1"},
                   "Hello\n");
    EXPECT_EQ(chat.code, 0) << chat.err;
    EXPECT_THAT(chat.err, HasSubstr(kAnswered));
  }
}

TEST(Chat, NoThinkNeedsATemplateThatKnowsIt) {
  const CommandResult chat = run_winnow(chat_words({"--no-think"}), "Hello\n");
  EXPECT_EQ(chat.code, 1);
  EXPECT_EQ(chat.out, "");
  EXPECT_THAT(chat.err, HasSubstr("--no-think: the chat template of assets/dms-cr8 has no variable "
                                  "enable_thinking or thinking"));
  EXPECT_THAT(
      run_winnow({"generate", "--model", "assets/dms-cr8", "--prompt", "x", "--no-think"}).err,
      HasSubstr("--no-think goes with --chat only"));
}

TEST(Chat, SamplesAsTheModelsAuthorsWant) {
  const TempDirectory directory;
  std::filesystem::copy(std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8",
                        directory.path() / "model");
  std::filesystem::remove(directory.path() / "model/generation_config.json");
  static_cast<void>(directory.write("model/generation_config.json",
                                    R"({"temperature": 0.25, "top_k": 7, "top_p": 0.5})"));
  const auto settings = [&](const Words& more) {
    Words words{"chat", "--model", directory.file("model"), "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_winnow(words, "/set\n").out;
  };
  EXPECT_THAT(settings({"--top-k", "3"}),
              AllOf(HasSubstr("0.25"), HasSubstr("0.5"), HasSubstr("3"), Not(HasSubstr("7"))));
  EXPECT_THAT(settings({"--generation-config", "none"}),
              AllOf(HasSubstr("0.7"), Not(HasSubstr("0.25"))));
}

}  // namespace
}  // namespace winnow::testing
