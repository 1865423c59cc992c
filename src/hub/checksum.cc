#include "hub/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace winnow::hub {
namespace {

constexpr std::size_t kSha1Digits = 40;
constexpr std::size_t kSha256Digits = 64;

EVP_MD_CTX* digest_context(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

}  // namespace

bool is_checksum(const std::string& etag) {
  return (etag.size() == kSha1Digits || etag.size() == kSha256Digits) &&
         etag.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void Checksum::Free::operator()(void* context) const {
  EVP_MD_CTX_free(digest_context(context));
}

Checksum::Checksum(const std::string& etag, std::uint64_t size) : context_(EVP_MD_CTX_new()) {
  const bool is_git = etag.size() == kSha1Digits;
  const EVP_MD* const kind = is_git ? EVP_sha1() : EVP_sha256();
  require(
      context_ != nullptr && EVP_DigestInit_ex(digest_context(context_.get()), kind, nullptr) == 1,
      "OpenSSL cannot compute checksums");
  if (is_git) {  // git's prefix of a blob, with its zero byte
    const std::string header = fmt::format("blob {}", size);
    update(std::as_bytes(std::span(header.c_str(), header.size() + 1)));
  }
}

void Checksum::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(digest_context(context_.get()), bytes.data(), bytes.size());
}

std::string Checksum::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(digest_context(context_.get()), digest.data(), &size);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

}  // namespace winnow::hub
