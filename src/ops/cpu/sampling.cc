#include "ops/sampling.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"

namespace winnow::ops {
namespace {

// A candidate's sort key: its distance, then its token id.
using Place = std::uint64_t;

Place place_of(std::uint32_t distance, std::uint32_t token) {
  return Place{distance} << 32 | token;
}
std::uint32_t distance_of(Place place) {
  return static_cast<std::uint32_t>(place >> 32);
}
std::uint64_t weight_of(Place place) {
  return weight(distance_of(place));
}

// The upper half of a product: the part of `whole` that `fraction` in units of 2^-64 gives.
std::uint64_t part_of(std::uint64_t whole, std::uint64_t fraction) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{whole} * fraction >> 64);
}

// The tokens that `rule` may draw, the first rule.most of them, in any order.
std::vector<Place> candidates_of(std::span<const float> logits, float largest,
                                 const TokenRule& rule) {
  std::vector<Place> places(logits.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::uint32_t far = distance(logits[i], largest, rule.octaves);
    places[count] = place_of(far, static_cast<std::uint32_t>(i));
    count += far < kNoWeight ? 1 : 0;
  }
  places.resize(count);
  if (const auto most = static_cast<std::size_t>(rule.most); most > 0 && most < count) {
    std::ranges::nth_element(places, places.begin() + static_cast<std::ptrdiff_t>(most - 1));
    places.resize(most);
  }
  return places;
}

// The candidates up to a cut, which is found without sorting all of them: candidates are binned by
// distance, the bins' sums of weights tell which bin contains the cut, and only it is sorted.
class Candidates {
 public:
  explicit Candidates(std::vector<Place> places)
      : places_(std::move(places)), bins_(kNoWeight >> kBinBits) {
    for (const Place place : places_) {
      bins_[bin_of(place)] += weight_of(place);
    }
    weight_ = std::accumulate(bins_.begin(), bins_.end(), std::uint64_t{0});
  }

  // The weight of all candidates that are kept.
  [[nodiscard]] std::uint64_t weight() const { return weight_; }

  // Keeps the fewest first candidates whose weights add up to more than `target` < weight().
  // Returns the token of the last one.
  std::int32_t keep_beyond(std::uint64_t target) {
    std::size_t bin = 0;
    std::uint64_t before = 0;
    while (before + bins_[bin] <= target) {
      before += bins_[bin++];
    }
    std::vector<Place> members = members_of(bin);
    std::ranges::sort(members);
    std::size_t count = 0;
    for (weight_ = before; weight_ <= target; ++count) {
      weight_ += weight_of(members[count]);
    }
    last_ = members[count - 1];
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(last_));
  }

  // The tokens of all candidates that are kept, in any order.
  [[nodiscard]] std::vector<std::size_t> kept() const {
    std::vector<std::size_t> tokens;
    for (const Place place : places_) {
      if (place <= last_) {
        tokens.push_back(static_cast<std::uint32_t>(place));
      }
    }
    return tokens;
  }

  // Drops candidates that are farther away.
  void drop_beyond(std::uint32_t distance) {
    if (distance >= distance_of(last_)) {
      return;
    }
    last_ = place_of(distance, ~0U);
    const std::size_t bin = bin_of(last_);
    weight_ = std::accumulate(bins_.begin(), bins_.begin() + static_cast<std::ptrdiff_t>(bin),
                              std::uint64_t{0});
    for (const Place place : members_of(bin)) {
      weight_ += place <= last_ ? weight_of(place) : 0;
    }
  }

 private:
  static constexpr int kBinBits = kOctaveBits - 5;

  static std::size_t bin_of(Place place) { return distance_of(place) >> kBinBits; }
  [[nodiscard]] std::vector<Place> members_of(std::size_t bin) const {
    std::vector<Place> members;
    std::ranges::copy_if(places_, std::back_inserter(members),
                         [bin](Place place) { return bin_of(place) == bin; });
    return members;
  }

  std::vector<Place> places_;
  std::vector<std::uint64_t> bins_;      // sums of weights
  Place last_ = place_of(kNoWeight, 0);  // candidates after this one are dropped
  std::uint64_t weight_ = 0;
};

// The candidates that `rule` may draw from `logits`, whose maximum is `largest`.
Candidates truncated(std::span<const float> logits, float largest, const TokenRule& rule) {
  Candidates candidates(candidates_of(logits, largest, rule));
  if (rule.share > 0) {
    candidates.keep_beyond(part_of(candidates.weight(), rule.share));
  }
  candidates.drop_beyond(rule.farthest);
  return candidates;
}

constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

// Four floats are a vector on every CPU, and four vectors in flight hide the latency.
float largest_of(std::span<const float> x) {
  using Vector = float __attribute__((vector_size(16)));
  constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);
  constexpr std::size_t kVectors = 4;
  Vector largest[kVectors];
  std::ranges::fill(largest, Vector{} + kLowest);
  std::size_t i = 0;
  for (; i + kVectors * kLanes <= x.size(); i += kVectors * kLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vector next;
      std::memcpy(&next, &x[i + v * kLanes], sizeof(Vector));
      largest[v] = next > largest[v] ? next : largest[v];
    }
  }
  float result = kLowest;
  const auto take = [&result](float value) { result = value > result ? value : result; };
  for (const Vector& lanes : largest) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      take(lanes[lane]);
    }
  }
  std::ranges::for_each(x.subspan(i), take);
  return result;
}

namespace {

// The first of the largest logits, ignoring NaN.
std::int32_t most_likely(std::span<const float> logits) {
  // Finds the first block that contains the maximum, then searches only that block.
  constexpr std::size_t kBlock = 512;
  float largest = kLowest;
  std::span<const float> searched = logits;  // all logits: used if the maximum is kLowest
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    if (const float x = largest_of(block); x > largest) {
      largest = x;
      searched = block;
    }
  }
  const auto place = std::ranges::find(searched, largest);
  return place == searched.end() ? kNoToken : static_cast<std::int32_t>(&*place - logits.data());
}

// keep_candidates() for a rule that only looks at distances.
void drop_beyond(std::span<float> logits, float largest, const TokenRule& rule) {
  for (float& logit : logits) {
    const std::uint32_t far = distance(logit, largest, rule.octaves);
    logit = far < kNoWeight && far <= rule.farthest ? logit : kLowest;
  }
}

}  // namespace

std::vector<float> penalize_seen(std::span<const float> logits,
                                 std::span<const std::int32_t> history, float penalty) {
  std::vector<float> result(logits.begin(), logits.end());
  if (penalty == 1.0F) {
    return result;
  }
  std::vector<bool> seen(logits.size());
  for (const std::int32_t token : history) {
    const auto i = static_cast<std::size_t>(token);
    if (!seen[i]) {
      seen[i] = true;
      result[i] = result[i] > 0.0F ? result[i] / penalty : result[i] * penalty;
    }
  }
  return result;
}

void forbid_others(std::span<const std::uint64_t> allowed, std::span<float> logits) {
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const std::uint64_t word = allowed[i];
    const auto part = logits.subspan(i * 64, std::min<std::size_t>(64, logits.size() - i * 64));
    if (word == 0) {
      std::ranges::fill(part, kLowest);
    } else if (~word != 0) {
      for (std::size_t bit = 0; bit < part.size(); ++bit) {
        part[bit] = (word >> bit & 1) != 0 ? part[bit] : kLowest;
      }
    }
  }
}

void check_vocabulary(std::size_t tokens) {
  require(tokens <= kMostTokens, "a vocabulary of {} tokens, at most {} can be sampled from",
          tokens, kMostTokens);
}

std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> history,
                          const TokenRule& rule, std::span<const std::uint64_t> allowed) {
  std::vector<float> edited;
  if (!allowed.empty()) {
    edited.assign(logits.begin(), logits.end());
    forbid_others(allowed, edited);
    logits = edited;
  }
  if (rule.penalty != 1.0F) {
    edited = penalize_seen(logits, history, rule.penalty);
    logits = edited;
  }
  const std::int32_t first = most_likely(logits);
  if (!allowed.empty() && first != kNoToken && logits[static_cast<std::size_t>(first)] == kLowest) {
    return kNoToken;
  }
  if (first == kNoToken || rule.is_certain()) {
    return first;
  }
  check_vocabulary(logits.size());
  Candidates candidates = truncated(logits, logits[static_cast<std::size_t>(first)], rule);
  return candidates.keep_beyond(part_of(candidates.weight(), rule.random));
}

void keep_candidates(std::span<float> logits, const TokenRule& rule) {
  check_vocabulary(logits.size());
  const std::int32_t first = most_likely(logits);
  if (first == kNoToken) {
    return;
  }
  if (rule.most == 0 && rule.share == 0) {
    return drop_beyond(logits, logits[static_cast<std::size_t>(first)], rule);
  }
  std::vector<float> kept(logits.size(), kLowest);
  for (const std::size_t token :
       truncated(logits, logits[static_cast<std::size_t>(first)], rule).kept()) {
    kept[token] = logits[token];
  }
  std::ranges::copy(kept, logits.begin());
}

}  // namespace winnow::ops
