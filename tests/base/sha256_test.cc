#include "base/sha256.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

// FIPS 180-4's examples and NIST's vector of a million letters.
TEST(Sha256, IsTheStandard) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += static_cast<char>(i * 7);
    const std::string whole = digest(text);
    for (const std::size_t piece : {1U, 3U, 63U, 64U, 65U}) {
      Sha256 hash;
      for (std::size_t at = 0; at < text.size(); at += piece) {
        hash.update(std::string_view(text).substr(at, piece));
      }
      ASSERT_EQ(hash.finish(), whole) << text.size() << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace winnow
