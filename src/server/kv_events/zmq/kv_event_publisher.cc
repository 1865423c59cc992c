#include "server/kv_events/zmq/kv_event_publisher.h"

#include <zmq.h>

#include <array>
#include <chrono>
#include <optional>
#include <utility>

namespace winnow::server {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{64} << 20;    // bytes of changes
constexpr std::size_t kMostSent = 10'000;                      // batches that are kept for replay
constexpr std::size_t kMostSentBytes = std::size_t{64} << 20;  // of these
constexpr int kMostQueued = 100'000;                           // batches for one subscriber
constexpr std::chrono::milliseconds kReplayPause{50};          // between checks for replay requests

double seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Eight bytes, big-endian.
std::string big_endian(std::uint64_t number) {
  std::string bytes(8, '\0');
  for (std::size_t i = bytes.size(); i-- > 0; number >>= 8U) {
    bytes[i] = static_cast<char>(number & 0xFFU);
  }
  return bytes;
}

std::uint64_t from_big_endian(const std::string& bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) {
    number = number << 8U | static_cast<unsigned char>(byte);
  }
  return number;
}

}  // namespace

KvEventPublisher::KvEventPublisher(KvEventsConfig config)
    : config_(std::move(config)),
      publisher_(ZMQ_PUB, config_.endpoint, binds_endpoint(config_.endpoint), kMostQueued,
                 "--kv-events"),
      chains_(config_.block_size),
      changes_(kMostWaiting) {
  if (!config_.replay.empty()) {
    replay_.emplace(ZMQ_ROUTER, config_.replay, /*binds=*/true,
                    2 * (static_cast<int>(kMostSent) + 1), "--kv-events-replay");
  }
  thread_ = std::thread([this] { work(); });
}

KvEventPublisher::~KvEventPublisher() {
  changes_.close();
  thread_.join();
}

void KvEventPublisher::prefix_stored(engine::StateNumber number, engine::StateNumber base,
                                     std::span<const std::int32_t> tokens,
                                     const model::Lora* adapter) {
  std::unique_lock lock(mutex_);
  std::string name = adapters_[adapter];
  lock.unlock();
  changes_.push({true, number, base, {tokens.begin(), tokens.end()}, std::move(name)});
}

void KvEventPublisher::prefix_removed(engine::StateNumber number) {
  changes_.push({.stored = false, .number = number});
}

void KvEventPublisher::name_adapter(const model::Lora* adapter, const std::string& name) {
  const std::lock_guard lock(mutex_);
  adapters_[adapter] = name;
}

void KvEventPublisher::work() {
  send({AllBlocksCleared{}});
  const auto pause = replay_ ? std::optional(kReplayPause) : std::nullopt;
  while (const auto changes = changes_.take(pause)) {
    publish(*changes);
    answer_replays();
  }
  send({AllBlocksCleared{}});
}

void KvEventPublisher::publish(const std::vector<PrefixChange>& changes) {
  std::vector<KvEvent> events;
  for (const PrefixChange& change : changes) {
    if (change.stored) {
      if (auto blocks = chains_.add(change.number, change.base, change.tokens, change.adapter)) {
        events.emplace_back(BlocksStored{std::move(*blocks), change.adapter});
      }
    } else if (auto hashes = chains_.remove(change.number); !hashes.empty()) {
      events.emplace_back(BlocksRemoved{std::move(hashes)});
    }
  }
  if (!events.empty()) {
    send(events);
  }
}

void KvEventPublisher::send(const std::vector<KvEvent>& events) {
  sent_.emplace_back(next_++,
                     pack_batch(seconds_now(), events, config_.format, config_.block_size));
  const auto& [number, batch] = sent_.back();
  publisher_.send({config_.topic, big_endian(number), batch});
  sent_bytes_ += batch.size();
  while (sent_.size() > kMostSent || sent_bytes_ > kMostSentBytes) {
    sent_bytes_ -= sent_.front().second.size();
    sent_.pop_front();
  }
}

// A request is [client, "", number of the first batch].
void KvEventPublisher::answer_replays() {
  constexpr std::size_t kFrames = 3;
  while (auto frames = replay_ ? replay_->receive() : std::nullopt) {
    if (frames->size() == kFrames) {
      answer(frames->front(), from_big_endian(frames->back()));
    }
  }
}

// Sends all kept batches from `first` on, and an empty one with the number -1.
void KvEventPublisher::answer(const std::string& client, std::uint64_t first) {
  const auto reply = [&](std::string_view topic, std::uint64_t number, std::string_view batch) {
    const std::string sequence = big_endian(number);
    if (config_.format == KvEventFormat::arrays) {  // this format is older than topics in replies
      replay_->send({client, "", sequence, batch});
    } else {
      replay_->send({client, "", topic, sequence, batch});
    }
  };
  for (const auto& [number, batch] : sent_) {
    if (number >= first) {
      reply(config_.topic, number, batch);
    }
  }
  reply("", ~std::uint64_t{0}, "");
}

std::unique_ptr<KvEvents> open_kv_events(const KvEventsConfig& config) {
  return std::make_unique<KvEventPublisher>(config);
}

}  // namespace winnow::server
