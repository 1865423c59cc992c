#include "server/http/request_parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace winnow::server {
namespace {

constexpr std::size_t kMostHeader = 1000;
constexpr std::size_t kMostBody = 2000;

const std::string kPost =
    "POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Request-Id: one\r\nContent-Length: "
    "5\r\n\r\nhello";
const std::string kChunked =
    "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
    "chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";

// The result of parsing bytes in pieces of these sizes; the last size is repeated.
struct Reading {
  HttpRequest request;
  int refused = 0;  // status
  bool complete = false;
  bool keep_alive = false;
  std::string rest;
};

Reading read(const std::string& bytes, const std::vector<std::size_t>& pieces) {
  RequestParser parser(kMostHeader, kMostBody);
  Reading reading;
  std::string unread;
  std::size_t at = 0;
  for (std::size_t i = 0; !parser.is_over() && at < bytes.size(); ++i) {
    const std::size_t piece = pieces[std::min(i, pieces.size() - 1)];
    unread += bytes.substr(at, piece);
    at += std::min(piece, bytes.size() - at);
    unread.erase(0, parser.put(unread));
  }
  reading.complete = parser.is_over();
  reading.refused = parser.refusal() ? parser.refusal()->status() : 0;
  if (reading.complete) {
    reading.keep_alive = parser.keep_alive();
    reading.request = parser.take("client");
  }
  reading.rest = unread + bytes.substr(at);
  return reading;
}

TEST(RequestParser, RefusesWhatRfc9112Forbids) {
  const auto status = [](const std::string& head) {
    return read("POST /tokenize HTTP/1.1\r\n" + head + "\r\n", {1000}).refused;
  };
  EXPECT_EQ(status("Host: x\r\n"), 0);
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("Host: x\r\nHost: y\r\n"), 400);
  EXPECT_EQ(status("Host: x\r\nTransfer-Encoding: gzip, chunked\r\n"), 501);
  EXPECT_EQ(status("Host: x\r\nContent-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(status("Host: x\r\nContent-Encoding: Identity\r\n"), 0);
  EXPECT_EQ(status("Host: x\r\nExpect: a miracle\r\n"), 417);
  EXPECT_EQ(read("GET /health HTTP/1.0\r\n\r\n", {1000}).refused, 0);
  EXPECT_EQ(status("Host: a b\r\n"), 400);
  EXPECT_EQ(status("Host: a/b\r\n"), 400);
  EXPECT_EQ(status("Host: [::1]:80\r\n"), 0);
  EXPECT_EQ(status("Host: \r\n"), 0);
  EXPECT_EQ(read("GET /health HTTP/9.9\r\nHost: x\r\n\r\n", {1000}).refused, 505);
}

TEST(RequestParser, ReadsAHigherMinorVersionAs11) {
  const std::string next = "POST /b?c HTTP/1.7\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
  for (const std::size_t piece : {1, 3, 7, 11, 1000}) {
    const Reading reading = read("\r\n" + next + next, {piece});
    EXPECT_TRUE(reading.complete);
    EXPECT_EQ(reading.refused, 0) << piece;
    EXPECT_TRUE(reading.keep_alive);
    EXPECT_EQ(reading.request.path, "/b");
    EXPECT_EQ(reading.request.body, "hi");
    EXPECT_EQ(reading.rest, next);
  }
  EXPECT_EQ(read("GET / HTTP/1.2\r\n\r\n", {1000}).refused, 400);  // as 1.1, it needs a Host
  EXPECT_EQ(read("GET / HTTP/2.0\r\nHost: x\r\n\r\n", {1000}).refused, 505);
  EXPECT_EQ(read("GET / HTTP/0.9\r\nHost: x\r\n\r\n", {1000}).refused, 505);
  const std::string body = "GET / HTTP/1.2\r\n";  // is not a head, and is not changed
  EXPECT_EQ(
      read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n" + body, {9}).request.body,
      body);
}

TEST(RequestParser, TellsALongTargetFromALargeHead) {
  const std::string much(2 * kMostHeader, 'a');
  for (const std::vector<std::size_t>& pieces : {std::vector<std::size_t>{5000}, {100}}) {
    EXPECT_EQ(read("GET /" + much + " HTTP/1.1\r\nHost: x\r\n\r\n", pieces).refused, 414);
    EXPECT_EQ(read("GET / HTTP/1.1\r\nHost: x\r\nX: " + much + "\r\n\r\n", pieces).refused, 431);
  }
}

TEST(RequestParser, SkipsEmptyLinesBeforeARequest) {
  for (const std::vector<std::size_t>& pieces : {std::vector<std::size_t>{1000}, {1}, {3, 2, 1}}) {
    const Reading reading = read("\r\n\r\n" + kPost, pieces);
    EXPECT_EQ(reading.refused, 0);
    EXPECT_EQ(reading.request.body, "hello");
  }
  EXPECT_EQ(read("\n" + kPost, {1000}).refused, 400);
  EXPECT_FALSE(read("\r\n\r\n", {1000}).complete);
}

TEST(RequestParser, TakesTheAbsoluteFormOfATarget) {
  const auto path = [](const std::string& target) {
    return read("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n", {1000}).request.path;
  };
  EXPECT_EQ(path("http://127.0.0.1:8080/health?a=b"), "/health");
  EXPECT_EQ(path("HTTPS://[::1]/v1/models"), "/v1/models");
  EXPECT_EQ(path("http://example.com"), "/");
  EXPECT_EQ(path("/http://x/y"), "/http://x/y");
}

TEST(RequestParser, ReadsHeadAndBody) {
  const Reading reading = read(kPost, {1000});
  EXPECT_TRUE(reading.complete);
  EXPECT_TRUE(reading.keep_alive);
  EXPECT_EQ(reading.request.method, "POST");
  EXPECT_EQ(reading.request.path, "/v1/completions");
  EXPECT_EQ(reading.request.query, "a=b");
  EXPECT_EQ(reading.request.id, "one");
  EXPECT_EQ(reading.request.client, "client");
  EXPECT_EQ(reading.request.header("host"), "x");
  EXPECT_EQ(reading.request.body, "hello");
  EXPECT_EQ(read(kChunked, {1000}).request.body, "hello");
}

TEST(RequestParser, TellsTheHeadBeforeTheBodyIsThere) {
  RequestParser parser(kMostHeader, kMostBody);
  const std::string head = "POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
  const std::size_t used = parser.put(head.substr(0, 20));  // the caller keeps half a line
  EXPECT_LT(used, 20);
  EXPECT_FALSE(parser.has_head());
  EXPECT_EQ(parser.put(head.substr(used)), head.size() - used);
  EXPECT_TRUE(parser.has_head());
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_FALSE(parser.speaks_http_1_1());
  EXPECT_FALSE(parser.is_over());
  EXPECT_EQ(parser.put("hello"), 5);
  EXPECT_TRUE(parser.is_over());
  EXPECT_FALSE(parser.keep_alive());
}

TEST(RequestParser, LeavesTheNextRequestUnread) {
  EXPECT_EQ(read(kPost + kChunked, {1000}).rest, kChunked);
}

RC_GTEST_PROP(RequestParser, HowBytesAreCutDoesNotMatter, ()) {
  const std::string bytes = *rc::gen::element(kPost, kChunked) + kPost;
  const auto pieces = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 40)));
  const Reading whole = read(bytes, {bytes.size()});
  const Reading cut = read(bytes, pieces);
  RC_ASSERT(cut.complete);
  RC_ASSERT(cut.request.path == whole.request.path);
  RC_ASSERT(cut.request.headers == whole.request.headers);
  RC_ASSERT(cut.request.body == whole.request.body);
  RC_ASSERT(cut.rest == whole.rest);
}

TEST(RequestParser, RefusesWhatIsTooLarge) {
  const std::string long_head = "GET / HTTP/1.1\r\nX: " + std::string(kMostHeader, 'a');
  const std::string announced = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2001\r\n\r\n";
  const std::string chunks =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d1\r\n" +
      std::string(2001, 'x');
  for (const std::size_t piece : {1, 7, 5000}) {
    EXPECT_EQ(read(long_head, {piece}).refused, 431) << piece;
    EXPECT_EQ(read(announced, {piece}).refused, 413) << piece;
    EXPECT_EQ(read(chunks, {piece}).refused, 413) << piece;
  }
}

TEST(RequestParser, NamesTheLimit) {
  const auto message = [](const std::string& bytes) {
    RequestParser parser(kMostHeader, kMostBody);
    parser.put(bytes);
    return std::string(parser.refusal().value().what());
  };
  EXPECT_THAT(
      message("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2001\r\n\r\n"),
      ::testing::HasSubstr("than the 2000 bytes that this server accepts (--max-body-mib)"));
  EXPECT_THAT(message("GET / HTTP/1.1\r\nX: " + std::string(kMostHeader, 'a')),
              ::testing::HasSubstr(fmt::format("than the {} bytes", kMostHeader)));
}

TEST(RequestParser, RefusesWhatIsNoRequest) {
  for (const std::string bytes :
       {"nonsense\r\n\r\n", "GET /\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    const Reading reading = read(bytes, {3});
    EXPECT_EQ(reading.refused, 400) << bytes;
    EXPECT_FALSE(reading.keep_alive);
    EXPECT_FALSE(reading.request.id.empty());
  }
}

TEST(RequestParser, GivesRequestsAnIdUnlessTheyHaveAPlainOne) {
  const auto id_of = [](const std::string& id) {
    return read("GET / HTTP/1.1\r\nX-Request-Id: " + id + "\r\n\r\n", {1000}).request.id;
  };
  EXPECT_EQ(id_of("a-b.7_Z"), "a-b.7_Z");
  EXPECT_THAT(id_of("a b"), ::testing::StartsWith("req-"));
  EXPECT_THAT(id_of(std::string(65, 'a')), ::testing::StartsWith("req-"));
  EXPECT_NE(id_of("a b"), id_of("a b"));
}

}  // namespace
}  // namespace winnow::server
