// Which tokens of sequences share their pages.
#pragma once

#include <memory>
#include <unordered_set>

namespace winnow::engine {

/// The tokens up to a place where states have been forked. What was forked there, and what goes on
/// from there, share the pages of these tokens.
struct SharedPart {
  int length = 0;                            // in tokens, with those before
  std::shared_ptr<const SharedPart> before;  // the beginning that it shares with still others
};

/// The tokens of shared parts, each counted once.
class SharedTokens {
 public:
  void add(const SharedPart* part) {
    for (; part != nullptr && counted_.insert(part).second; part = part->before.get()) {
      count_ += part->length - (part->before ? part->before->length : 0);
    }
  }
  void add(int tokens) { count_ += tokens; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] bool contains(const SharedPart* part) const { return counted_.contains(part); }

 private:
  std::unordered_set<const SharedPart*> counted_;
  int count_ = 0;
};

}  // namespace winnow::engine
