#include "server/responses/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace winnow::server {
namespace {

StoredResponse of_bytes(const std::string& id, std::size_t bytes) {
  return {id, {{"id", id}}, nlohmann::ordered_json::array(), {std::string(bytes, 'a')}};
}

TEST(ResponseStore, ALongChatIsSharedNotCopied) {
  ResponseStore store(1000, nullptr);
  store.put(of_bytes("a", 100));
  const auto found = store.find("a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found, store.find("a"));
  EXPECT_EQ(store.find("b"), nullptr);
}

TEST(ResponseStore, WhatIsInUseOutlivesItsPlace) {
  ResponseStore store(1000, nullptr);
  store.put(of_bytes("a", 600));
  const auto found = store.find("a");
  store.put(of_bytes("b", 600));
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(found->id, "a");
  EXPECT_TRUE(store.erase("b"));
  EXPECT_FALSE(store.erase("b"));
}

}  // namespace
}  // namespace winnow::server
