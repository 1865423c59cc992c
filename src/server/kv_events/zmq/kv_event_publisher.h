// KvEvents over ZeroMQ.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/kv_events/block_chains.h"
#include "server/kv_events/change_queue.h"
#include "server/kv_events/kv_events.h"
#include "server/kv_events/zmq/event_batch.h"
#include "server/kv_events/zmq/zmq_socket.h"

namespace winnow::server {

/// Batches are numbered from 0. The first and the last say that all prefixes are gone: a subscriber
/// may still know blocks of an earlier server.
class KvEventPublisher : public KvEvents {
 public:
  explicit KvEventPublisher(KvEventsConfig config);
  ~KvEventPublisher() override;
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  void prefix_stored(engine::StateNumber number, engine::StateNumber base,
                     std::span<const std::int32_t> tokens, const model::Lora* adapter) override;
  void prefix_removed(engine::StateNumber number) override;
  void name_adapter(const model::Lora* adapter, const std::string& name) override;

 private:
  void work();
  void publish(const std::vector<PrefixChange>& changes);
  void send(const std::vector<KvEvent>& events);
  void answer_replays();
  void answer(const std::string& client, std::uint64_t first);

  KvEventsConfig config_;

  // Used only on the publisher's thread.
  ZmqSocket publisher_;
  std::optional<ZmqSocket> replay_;
  BlockChains chains_;
  std::uint64_t next_ = 0;
  std::deque<std::pair<std::uint64_t, std::string>> sent_;  // the last batches, by number
  std::size_t sent_bytes_ = 0;

  ChangeQueue changes_;
  std::mutex mutex_;  // of the members below
  std::map<const model::Lora*, std::string> adapters_;

  std::thread thread_;
};

}  // namespace winnow::server
