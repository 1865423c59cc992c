// Several chains over one prompt, and the answer that most of them give.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answers/majority.h"
#include "engine/request.h"
#include "server/openai/vote_fields.h"

namespace winnow::server {

class Vote {
 public:
  /// `heads`: of the cache, over all layers.
  Vote(const VoteRequest& request, int heads);

  /// A chain has ended, with this text behind its thought.
  void end(std::size_t chain, const std::string& text, engine::FinishReason finish, int tokens);
  [[nodiscard]] bool has_ended(std::size_t chain) const;
  /// What its cache read and held.
  void count(std::size_t chain, engine::CacheReads reads) {
    chains_[chain].reads = std::move(reads);
  }

  /// Whether the chains that have not ended can no longer change the majority.
  [[nodiscard]] bool is_decided() const;
  /// The chain whose text is the answer: the first of the majority. Without any vote the first.
  [[nodiscard]] std::size_t chosen() const;
  /// What the client is told; reads and entries are means over the heads.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Chain {
    std::string text = {};
    std::string vote = {};
    engine::FinishReason finish = engine::FinishReason::none;
    int tokens = 0;
    engine::CacheReads reads = {};
  };

  [[nodiscard]] std::vector<answers::Opinion> opinions() const;

  VoteRequest request_;
  double heads_;
  std::vector<Chain> chains_;
};

}  // namespace winnow::server
