#include "api/llm_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tokenizer/tiny.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow::engine {
namespace {

// Models may have padding in their vocabularies, and tokenizers may lack ids.
TEST(Collector, WhatIsNoTokenHasNoText) {
  const auto tokenizer =
      parse_tokenizer_json(winnow::testing::tiny_tokenizer().dump(), "tokenizer.json");
  const GenerateOptions options;
  const TextCallback on_text;
  Collector collector(tokenizer.get(), options, on_text);
  for (const std::int32_t token : {258, 270, 302, 97}) {
    TokenEvent event;
    event.token = token;
    event.finish = token == 97 ? FinishReason::length : FinishReason::none;
    collector.accept(event);
  }
  ASSERT_TRUE(collector.complete());
  const Sample sample = collector.take().front();
  EXPECT_EQ(sample.text, " thea");
  EXPECT_THAT(sample.token_ids, ::testing::ElementsAre(258, 270, 302, 97));
}

}  // namespace
}  // namespace winnow::engine
