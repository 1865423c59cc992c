// Answers of another server, good and bad, and how the client handles them.
#include "server/prefill/prefill_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "checkpoint/checkpoint_testing.h"
#include "engine/saved_states.h"

namespace winnow::server {
namespace {

using engine::testing::dms_kind;
using engine::testing::dms_state;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using namespace std::chrono_literals;

/// Answers each connection with the same bytes.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, any, size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { work(); });
  }
  ~FakeServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  [[nodiscard]] std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  [[nodiscard]] std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void work() {
    for (int client = 0; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      std::string request;
      std::array<char, 4096> piece{};
      while (!request.ends_with("]}")) {  // the end of the request
        const ssize_t count = ::recv(client, piece.data(), piece.size(), 0);
        if (count <= 0) {
          break;
        }
        request.append(piece.data(), static_cast<std::size_t>(count));
      }
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      if (answer_.empty()) {  // never answers: waits until the client leaves
        while (::recv(client, piece.data(), piece.size(), 0) > 0) {
        }
      }
      for (std::size_t sent = 0; sent < answer_.size();) {
        const ssize_t count =
            ::send(client, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) {
          break;
        }
        sent += static_cast<std::size_t>(count);
      }
      ::close(client);
    }
  }

  std::string answer_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string answer_with(const std::string& body, const std::string& status = "200 OK",
                        std::size_t missing = 0) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", status,
                     body.size() + missing) +
         body;
}

std::string image_of(int length, const std::string& model = "m", int first = 0) {
  return engine::state_image(dms_kind(model), dms_state(length, first));
}

class Prefill : public ::testing::Test {
 protected:
  std::unique_ptr<PrefillClient> open(const std::string& url,
                                      std::chrono::milliseconds timeout = 30s,
                                      std::chrono::milliseconds pause = 1h) {
    return std::make_unique<PrefillClient>(PrefillClientConfig{.url = url,
                                                               .api_key = "secret",
                                                               .least_tokens = 40,
                                                               .timeout = timeout,
                                                               .pause = pause},
                                           dms_kind("m"), [this](const std::string& warning) {
                                             const std::lock_guard lock(mutex_);
                                             warnings_.push_back(warning);
                                           });
  }

  /// 0, 1, 2 ...
  static std::vector<std::int32_t> prompt(int length) { return dms_state(length).tokens; }

  /// Requests a state of 59 tokens from a server with this answer.
  std::shared_ptr<const engine::SavedState> fetched(const std::string& answer) {
    const FakeServer server(answer);
    const auto client = open(server.url());
    auto coming = client->find(prompt(60), 32);
    EXPECT_EQ(coming.length, 59U);
    auto state = coming.state.get();
    stats_ = client->stats();
    EXPECT_EQ(client->find(prompt(60), 32).length == 0, !state) << "it pauses after a failure";
    return state;
  }

  void expect_failure(const std::string& answer, const std::string& reason) {
    warnings_.clear();
    EXPECT_FALSE(fetched(answer)) << reason;
    ASSERT_EQ(warnings_.size(), 1U) << reason;
    EXPECT_THAT(warnings_[0], HasSubstr(reason));
    EXPECT_THAT(warnings_[0], StartsWith("http://127.0.0.1:"));
    EXPECT_THAT(warnings_[0], HasSubstr("prompts are computed here for 3.6e+03 s"));
    EXPECT_EQ(stats_.failures, 1);
    EXPECT_EQ(stats_.states, 0);
  }

  std::mutex mutex_;
  std::vector<std::string> warnings_;
  PrefillClientStats stats_;
};

TEST_F(Prefill, AWholeStateIsTaken) {
  const std::string image = image_of(59);
  const auto state = fetched(answer_with(image));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->tokens, prompt(59));
  EXPECT_EQ(state->cache, dms_state(59).cache);
  EXPECT_EQ(stats_.states, 1);
  EXPECT_EQ(stats_.bytes, static_cast<std::int64_t>(image.size()));
  EXPECT_GT(stats_.seconds, 0.0);
  EXPECT_EQ(stats_.failures, 0);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Prefill, TheQuestionHasKeyAndTokens) {
  const FakeServer server(answer_with(image_of(59)));
  const auto client = open(server.url() + "/");
  client->find(prompt(60), 32).state.get();
  ASSERT_EQ(server.requests().size(), 1U);
  const std::string asked = server.requests()[0];
  EXPECT_THAT(asked, StartsWith("POST /v1/prefill HTTP/1.1\r\n"));
  EXPECT_THAT(asked, HasSubstr("Authorization: Bearer secret\r\n"));
  EXPECT_THAT(asked, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(asked, HasSubstr("\r\n\r\n{\"tokens\":[0,1,2,3,"));
  EXPECT_THAT(asked, HasSubstr(",58,59]}"));
}

TEST_F(Prefill, WhatIsDamagedOrForeignIsNot) {
  std::string damaged = image_of(59);
  damaged[damaged.size() - 100] = static_cast<char>(damaged[damaged.size() - 100] ^ 1);
  expect_failure(answer_with(damaged), "is damaged: its checksum does not match");
  expect_failure(answer_with(image_of(59, "another")), "was saved for model \"another\"");
  expect_failure(answer_with(image_of(58)), "is of other tokens than it was asked for");
  expect_failure(answer_with(image_of(59, "m", 1000)), "is of other tokens");
  std::string other_format = image_of(59);
  other_format.replace(other_format.find("winnow-state-1"), 14, "winnow-state-9");
  expect_failure(answer_with(other_format), "has format \"winnow-state-9\"");
  expect_failure(answer_with("what is this"), "127.0.0.1");
  expect_failure(answer_with(""), "127.0.0.1");
}

TEST_F(Prefill, ABrokenTransferIsAFailure) {
  const std::string image = image_of(59);
  expect_failure(answer_with(image.substr(0, image.size() / 2), "200 OK", image.size() / 2), "");
  expect_failure("HTTP/1.1 200 OK\r\n", "");
  expect_failure(answer_with(std::string(std::size_t{4} << 20, 'x')),
                 "is larger than one of 60 tokens can be");
}

TEST_F(Prefill, ARefusalIsToldInItsWords) {
  expect_failure(answer_with(R"({"error": {"message": "the API key is missing or wrong"}})",
                             "401 Unauthorized"),
                 "answered with status 401: the API key is missing or wrong");
  expect_failure(answer_with("<html>", "502 Bad Gateway"), "answered with status 502;");
  expect_failure("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                 "answered with status 302;");
}

TEST_F(Prefill, AServerThatIsGoneOrSilentIsNotWaitedFor) {
  std::string url;
  { url = FakeServer("").url(); }
  const auto gone = open(url);
  EXPECT_FALSE(gone->find(prompt(60), 32).state.get());
  const FakeServer silent("");
  const auto slow = open(silent.url(), 200ms);
  auto first = slow->find(prompt(60), 32);
  auto second = slow->find(prompt(61), 32);
  EXPECT_FALSE(first.state.get());
  EXPECT_FALSE(second.state.get());
  EXPECT_EQ(warnings_.size(), 2U) << "one of each server";
}

TEST_F(Prefill, ItIsAskedAgainAfterThePause) {
  const FakeServer server(answer_with("", "503 Service Unavailable"));
  const auto client = open(server.url(), 30s, 1ms);
  client->find(prompt(60), 32).state.get();
  std::this_thread::sleep_for(5ms);
  client->find(prompt(60), 32).state.get();
  EXPECT_EQ(server.requests().size(), 2U);
  EXPECT_EQ(client->stats().failures, 2);
}

TEST_F(Prefill, ShortPromptsAreNotAskedFor) {
  const FakeServer server(answer_with(image_of(59)));
  const auto client = open(server.url(), 30s, 0ms);  // its answer does not matter
  EXPECT_EQ(client->find(prompt(39), 32).length, 0U);
  EXPECT_EQ(client->find(prompt(40), 32).length, 39U);
  EXPECT_EQ(client->find(prompt(60), 21 + 32).length, 0U);  // 21 of them are cached
  EXPECT_EQ(client->find(prompt(60), 20 + 32).length, 59U);
}

TEST_F(Prefill, WhatIsNotWantedAnyMoreEndsAndIsNoFailure) {
  const FakeServer silent("");
  const auto client = open(silent.url(), 1h);
  auto coming = client->find(prompt(60), 32);
  while (silent.requests().empty()) {
    std::this_thread::sleep_for(1ms);
  }
  coming.wanted.reset();
  EXPECT_FALSE(coming.state.get());
  EXPECT_EQ(client->stats().failures, 0);
  EXPECT_THAT(warnings_, IsEmpty());
}

// More states than places: states that nobody takes delay the others, but nothing else.
TEST_F(Prefill, StatesThatNobodyTakesAreBounded) {
  const FakeServer server(answer_with(image_of(59)));
  const auto client = open(server.url());
  std::vector<engine::ComingState> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(client->find(prompt(60), 32));
  }
  const auto come = [&] {
    return std::ranges::count_if(all, [](const engine::ComingState& coming) {
      return coming.state.wait_for(0s) == std::future_status::ready;
    });
  };
  while (come() < 16) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(come(), 16);
  int taken = 0;
  for (engine::ComingState& coming : all) {
    if (coming.state.get()) {
      ++taken;
    }
    coming = {};
  }
  EXPECT_EQ(taken, 40);
}

TEST_F(Prefill, WhatIsNoUrlIsAnError) {
  for (const char* url : {"somewhere", "ftp://here", "http://user:word@here", "http://here/?a"}) {
    EXPECT_THAT(winnow::error_of([&] { open(url); }), HasSubstr("--prefill-from"));
  }
}

}  // namespace
}  // namespace winnow::server
