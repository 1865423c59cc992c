#include "engine/ranks/ranked_backend.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/ranks/ranked_copies.h"
#include "engine/ranks/ranked_sequence.h"

namespace winnow::engine {
namespace {

class RankedRunner : public Runner {
 public:
  RankedRunner(Group& group, const EngineConfig& config, int tokens)
      : group_(group), settings_{group.new_id(), config.cache} {
    try {
      make(config, tokens);
    } catch (...) {
      drop();  // some ranks may have made theirs
      throw;
    }
  }
  ~RankedRunner() override { drop(); }
  RankedRunner(const RankedRunner&) = delete;
  RankedRunner& operator=(const RankedRunner&) = delete;

  std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
    auto sequence = std::make_unique<RankedSequence>(group_, settings_, group_.new_id(), limits, 0);
    group_.ask(RankCommand::open, [&](MessageWriter& message) {
      message.put(settings_.id);
      message.put(sequence->id());
      message.put(limits);
    });
    return sequence;
  }

  std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                         const kvcache::SavedSequence& saved) override {
    auto sequence =
        std::make_unique<RankedSequence>(group_, settings_, group_.new_id(), limits, saved.length);
    const bool room = group_.ask_for<bool>(
        RankCommand::restore,
        [&](MessageWriter& message) {
          message.put(settings_.id);
          message.put(sequence->id());
          message.put(limits);
          put(message, saved);
        },
        std::logical_and<>());
    return room ? std::move(sequence) : nullptr;
  }

  std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes) override {
    return make_ranked_copies(group_, settings_, max_bytes);
  }

  [[nodiscard]] kvcache::PageNeed need(const SequenceState& sequence, int tokens) const override {
    return static_cast<const RankedSequence&>(sequence).need(tokens);
  }

  [[nodiscard]] bool has_room(const kvcache::PageNeed& need) const override {
    return group_.ask_for<bool>(
        RankCommand::has_room,
        [&](MessageWriter& message) {
          message.put(settings_.id);
          put(message, need);
          for (std::size_t i = 0; i + 1 < group_.shapes().size(); ++i) {
            put(message, i < need.others.size() ? need.others[i] : kvcache::PageNeed{});
          }
        },
        std::logical_and<>());
  }

  void prepare(const model::Lora& /*adapter*/) override { fail("adapters run on one rank only"); }
  void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
               std::span<std::int32_t> next) override;

  [[nodiscard]] std::size_t page_bytes() const override { return bytes().pages; }
  [[nodiscard]] std::size_t state_bytes() const override { return bytes().states; }
  [[nodiscard]] std::size_t capacity_bytes() const override { return capacity_; }
  [[nodiscard]] bool forks_share_pages() const override { return forks_share_; }

 private:
  [[nodiscard]] std::function<void(MessageWriter&)> names() const {
    return [this](MessageWriter& message) { message.put(settings_.id); };
  }
  void make(const EngineConfig& config, int tokens) {
    auto answers = group_.ask(RankCommand::make_runner, [&](MessageWriter& message) {
      message.put(settings_.id);
      message.put(config);
      message.put(tokens);
    });
    for (RankAnswer& answer : answers) {
      capacity_ += answer.take<std::size_t>();
      forks_share_ = answer.take<bool>();
    }
  }
  void drop() noexcept {
    try {
      group_.ask(RankCommand::drop_runner, names());
    } catch (const std::exception&) {  // a rank has failed: the runner is gone
    }
  }
  /// Bytes of pages and states, summed over the ranks.
  struct Bytes {
    std::size_t pages = 0;
    std::size_t states = 0;
    std::int64_t asked = 0;  // Group::asked() at that time
  };
  [[nodiscard]] Bytes bytes() const {
    if (bytes_.asked != group_.asked()) {
      auto answers = group_.ask(RankCommand::bytes, names());
      remember_bytes(answers);
    }
    return bytes_;
  }
  void remember_bytes(std::span<RankAnswer> answers) const {
    bytes_ = {.asked = group_.asked()};
    for (RankAnswer& answer : answers) {
      bytes_.pages += answer.take<std::size_t>();
      bytes_.states += answer.take<std::size_t>();
    }
  }
  void put_shares(MessageWriter& message, std::span<const SequenceShare> shares) const;

  Group& group_;
  RunnerSettings settings_;
  std::size_t capacity_ = 0;
  bool forks_share_ = true;
  mutable Bytes bytes_;  // valid while Group::asked() is the same
};

void RankedRunner::put_shares(MessageWriter& message, std::span<const SequenceShare> shares) const {
  message.put(settings_.id);
  message.put(shares.size());
  for (const SequenceShare& share : shares) {
    message.put(static_cast<const RankedSequence&>(*share.sequence).id());
    message.put_all(share.tokens);
    message.put(share.logit_rows);
    message.put(share.visible.data != nullptr);
    message.put(share.state.size());
  }
}

void RankedRunner::forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
                           std::span<std::int32_t> next) {
  const StepResults results{logits, next, shares};
  auto answers = group_.ask(
      RankCommand::forward, [&](MessageWriter& message) { put_shares(message, shares); }, &results);
  remember_bytes(answers);
  for (const SequenceShare& share : shares) {
    std::int64_t live_entries = 0;
    std::vector<kvcache::PageNeed> needs;
    std::vector<std::vector<std::int32_t>> visible;
    for (RankAnswer& answer : answers) {
      live_entries += answer.take<std::int64_t>();
      needs.push_back(take_need(answer.reader()));
      visible.push_back(answer.take_all<std::int32_t>());
    }
    static_cast<RankedSequence&>(*share.sequence)
        .took(static_cast<int>(share.tokens.size()), live_entries, join_needs(std::move(needs)));
    for (std::size_t t = 0; t < share.visible.rows; ++t) {
      std::vector<std::span<const std::int32_t>> parts;
      for (const auto& values : visible) {
        const std::size_t heads = values.size() / share.tokens.size();
        parts.push_back(std::span(values).subspan(t * heads, heads));
      }
      join_heads(group_, parts, share.visible.row(t));
    }
  }
}

class RankedBackend : public Backend {
 public:
  RankedBackend(std::unique_ptr<const Backend> local, model::ModelSpec whole,
                parallel::Communicator& ranks)
      : group_(std::move(local), std::move(whole), ranks) {}

  [[nodiscard]] const model::ModelSpec& spec() const override { return group_.whole(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return group_.shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override {
    return group_.ask_for<std::size_t>(
        RankCommand::weight_bytes, [&](MessageWriter& message) { message.put(sequences); },
        std::plus<>());
  }
  /// The total of the ranks' own memories; or the host's alone, which CPU ranks may share.
  [[nodiscard]] double read_bandwidth() const override {
    const double local = group_.local().read_bandwidth();
    return memory_in_use() ? local * static_cast<double>(group_.shapes().size()) : local;
  }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override {
    return group_.local().memory_in_use();
  }
  [[nodiscard]] std::string_view rank_exchange() const override {
    return group_.local().rank_exchange();
  }
  [[nodiscard]] std::unique_ptr<Runner> make_runner(const EngineConfig& config,
                                                    int tokens) const override {
    return std::make_unique<RankedRunner>(group_, config, tokens);
  }

 private:
  mutable Group group_;  // mutable: const queries send messages
};

}  // namespace

std::unique_ptr<Backend> make_ranked_backend(std::unique_ptr<const Backend> local,
                                             model::ModelSpec whole,
                                             parallel::Communicator& ranks) {
  return std::make_unique<RankedBackend>(std::move(local), std::move(whole), ranks);
}

}  // namespace winnow::engine
