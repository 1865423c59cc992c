#include "server/prefill/prefill_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "checkpoint/json_text.h"
#include "hub/http_client.h"

namespace winnow::server {
namespace {

using Tokens = std::span<const std::int32_t>;
using Clock = std::chrono::steady_clock;

constexpr int kThreads = 8;
constexpr int kMostStates = 2 * kThreads;
constexpr std::size_t kMostMessage = 300;

std::size_t length_of_body(const hub::HttpResponse& response) {
  const std::string text = response.header("content-length");
  std::size_t length = 0;
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

// The message of a refusal from a winnow server.
std::string message_of(const hub::HttpResponse& response) {
  const auto body = json_or_discarded<nlohmann::json>(response.body);
  const nlohmann::json::json_pointer message("/error/message");
  const bool told = body.is_object() && body.contains(message) && body.at(message).is_string();
  return told ? ": " + body.at(message).get<std::string>().substr(0, kMostMessage) : "";
}

}  // namespace

// Lives until its state has been taken, or is no longer wanted.
struct PrefillClient::Question {
  Question(Tokens tokens, Clock::time_point until, PrefillClient& asker)
      : prompt(tokens.begin(), tokens.end()), deadline(until), client(asker) {}
  ~Question() {
    if (has_place) {
      client.free_place();
    }
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  std::vector<std::int32_t> prompt;
  Clock::time_point deadline;
  PrefillClient& client;
  std::int64_t number = 0;
  bool has_place = false;
  std::atomic<bool> given_up = false;
};

PrefillClient::PrefillClient(PrefillClientConfig config, engine::StateKind kind, Warn warn)
    : config_(std::move(config)),
      kind_(std::move(kind)),
      warn_(std::move(warn)),
      places_(kMostStates),
      workers_(kThreads) {
  std::string& url = config_.url;
  require((url.starts_with("http://") || url.starts_with("https://")) &&
              url.find_first_of("@?# ") == std::string::npos,
          "--prefill-from {}: expected a URL such as http://HOST:8080", url);
  while (url.ends_with('/')) {
    url.pop_back();
  }
  environment_ = {.endpoint = url,
                  .cache = {},
                  .token = config_.api_key,
                  .token_source = {},
                  .certificates = hub::certificates_of_environment()};
}

engine::ComingState PrefillClient::find(Tokens prompt, std::size_t known) {
  // `known` includes tokens that are computed as fast as restored.
  const std::size_t cached = known - std::min<std::size_t>(known, engine::kLeastPrefix);
  if (prompt.size() < cached + static_cast<std::size_t>(config_.least_tokens) ||
      prompt.size() <= known + 1 || is_pausing()) {
    return {};
  }
  const auto question = std::make_shared<Question>(prompt, Clock::now() + config_.timeout, *this);
  {
    const std::lock_guard lock(mutex_);
    question->number = asked_++;
  }
  const auto promise = std::make_shared<std::promise<std::shared_ptr<const engine::SavedState>>>();
  workers_.run([this, question, promise] {
    take_place(*question);
    promise->set_value(ask(*question));
  });
  return {.length = prompt.size() - 1,
          .state = promise->get_future(),
          .wanted = {question.get(), [question](const void*) { question->given_up = true; }}};
}

std::shared_ptr<const engine::SavedState> PrefillClient::ask(const Question& question) {
  if (question.given_up || is_pausing()) {
    return nullptr;
  }
  const Stopwatch clock;
  try {
    const Bytes image = download(question);
    auto state =
        std::make_shared<const engine::SavedState>(engine::parse_state(image, config_.url, kind_));
    require(std::ranges::equal(state->tokens,
                               Tokens(question.prompt).first(question.prompt.size() - 1)),
            "{}: its state is of other tokens than it was asked for", config_.url);
    const std::lock_guard lock(mutex_);
    ++stats_.states;
    stats_.bytes += static_cast<std::int64_t>(image.size());
    stats_.seconds += clock.seconds();
    return state;
  } catch (const hub::Stopped&) {
    return nullptr;  // nobody waits for it any more
  } catch (const std::exception& error) {
    note_failure(error.what());
    return nullptr;
  }
}

PrefillClient::Bytes PrefillClient::download(const Question& question) const {
  const double seconds = std::chrono::duration<double>(question.deadline - Clock::now()).count();
  require(seconds > 0.0, "{}: no answer in time", config_.url);
  const std::size_t most = most_bytes(question.prompt.size());
  Bytes image;
  hub::HttpClient client(environment_, question.given_up);
  const hub::HttpResponse response =
      client.send({.url = config_.url + "/v1/prefill",
                   .follow = false,
                   .json = fmt::format(R"({{"tokens":[{}]}})", fmt::join(question.prompt, ",")),
                   .seconds = seconds},
                  [&](const hub::HttpResponse& head, std::span<const std::byte> bytes) {
                    image.reserve(std::min(most, length_of_body(head)));
                    require(image.size() + bytes.size() <= most,
                            "{}: its state is larger than one of {} tokens can be", config_.url,
                            question.prompt.size());
                    image.insert(image.end(), bytes.begin(), bytes.end());
                  });
  require(response.status == 200, "{}: answered with status {}{}", config_.url, response.status,
          message_of(response));
  return image;
}

// A dense cache's size and a margin: a server that never stops sending must not fill the memory.
std::size_t PrefillClient::most_bytes(std::size_t tokens) const {
  constexpr std::size_t kHeader = 1 << 20;
  constexpr std::size_t kNotes = 16;                    // metadata bytes per entry, under any rule
  constexpr std::size_t kGaps = 3 * ops::kPageEntries;  // entries of partially filled pages
  const auto heads = static_cast<std::size_t>(kind_.shape.all_heads());
  const auto open = 2 * static_cast<std::size_t>(kind_.shape.head_dim) + 64;
  const std::size_t entry = kind_.layout.page_bytes() / ops::kPageEntries + 1 + kNotes;
  return kHeader + tokens * sizeof(std::int32_t) + kind_.shape.states.bytes() +
         heads * ((tokens + kGaps) * entry + open * sizeof(float));
}

bool PrefillClient::is_pausing() const {
  const std::lock_guard lock(mutex_);
  return Clock::now() < asks_again_;
}

// Reports only the first failure of a pause.
void PrefillClient::note_failure(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.failures;
    const auto now = Clock::now();
    if (now < asks_again_) {
      return;
    }
    asks_again_ = now + config_.pause;
  }
  warn_(fmt::format("{}; prompts are computed here for {:.3g} s", message,
                    std::chrono::duration<double>(config_.pause).count()));
}

// First come, first served: a sequence may wait for this state before it takes another's.
void PrefillClient::take_place(Question& question) {
  std::unique_lock lock(mutex_);
  places_changed_.wait(lock, [&] { return places_ > 0 && placed_ == question.number; });
  --places_;
  ++placed_;
  question.has_place = true;
  places_changed_.notify_all();
}

void PrefillClient::free_place() {
  const std::lock_guard lock(mutex_);
  ++places_;
  places_changed_.notify_all();
}

PrefillClientStats PrefillClient::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace winnow::server
