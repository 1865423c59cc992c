#include "engine/truncation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/distribution.h"

namespace winnow::engine {
namespace {

// Removes all but `kept`.
void keep_only(std::span<const Choice> kept, std::span<float> logits) {
  std::vector<float> values;
  values.reserve(kept.size());
  for (const Choice& choice : kept) {
    values.push_back(logits[choice.token]);
  }
  std::ranges::fill(logits, kLeftOut);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    logits[kept[i].token] = values[i];
  }
}

double surprise(double probability) {
  return -std::log2(probability);
}

// How steeply probabilities fall: the exponent of Zipf's law fitted to the first of them (equation
// 30 of the paper).
double zipf_exponent(std::span<const Choice> first) {
  double products = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i + 1 < first.size(); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * std::log(first[i].probability / first[i + 1].probability);
    squares += t * t;
  }
  return squares > 0.0 ? products / squares : 1.0;
}

// A choice and how far its surprise is from the entropy.
struct Deviation {
  double bits;
  Choice choice;
};

bool more_typical(const Deviation& a, const Deviation& b) {
  return a.bits < b.bits || (a.bits == b.bits && comes_before(a.choice, b.choice));
}

// The choices that deviate by more than `beyond` bits and at most `reach`, in any order.
std::vector<Deviation> deviations(const Distribution& distribution, double beyond, double reach) {
  const double entropy = distribution.entropy();
  const std::vector<Choice> choices = distribution.choices(std::exp2(-entropy - reach));
  std::vector<Deviation> found;
  found.reserve(choices.size());
  for (const Choice& choice : choices) {
    const double bits = std::abs(surprise(choice.probability) - entropy);
    if (bits > beyond && bits <= reach) {
      found.push_back({bits, choice});
    }
  }
  return found;
}

// Sums of probabilities in different orders differ by less.
constexpr double kSumError = 1e-9;

// Keeps the most typical choices, as few as together have at least a probability. Sums tell which
// part of what it is given contains the cut, so that it sorts only a few choices around it.
class TypicalChoices {
 public:
  explicit TypicalChoices(double p) : p_(p) {}

  // Takes from choices that are less typical than those before, until there are enough.
  void take(std::span<Deviation> from) {
    constexpr std::size_t kFew = 64;
    constexpr std::size_t kWorthBins = 1024;
    if (from.size() > kWorthBins) {
      from = take_bins(from);
    }
    while (from.size() > kFew) {
      const auto half = from.first(from.size() / 2);
      std::ranges::nth_element(from, half.end(), more_typical);
      double mass = 0.0;
      std::ranges::for_each(half, [&](const Deviation& d) { mass += d.choice.probability; });
      if (sum_ + mass < p_) {
        std::ranges::for_each(half, [this](const Deviation& d) { keep(d.choice); });
        from = from.subspan(half.size());
      } else {
        from = half;
      }
    }
    std::ranges::sort(from, more_typical);
    for (std::size_t i = 0; i < from.size() && !enough(); ++i) {
      keep(from[i].choice);
    }
  }

  [[nodiscard]] const std::vector<Choice>& kept() const { return kept_; }
  [[nodiscard]] bool enough() const { return sum_ >= p_; }
  // Whether rounding may have moved the cut.
  [[nodiscard]] bool may_be_wrong() const {
    return std::abs(sum_ - p_) < kSumError ||
           (!kept_.empty() && std::abs(sum_ - kept_.back().probability - p_) < kSumError);
  }

 private:
  // Takes all bins of deviations before the one that contains the cut, which it returns.
  std::span<Deviation> take_bins(std::span<Deviation> from) {
    constexpr std::size_t kBins = 1024;
    const auto [least, most] = std::ranges::minmax(from, {}, &Deviation::bits);
    const double bins_per_bit = static_cast<double>(kBins - 1) / (most.bits - least.bits);
    if (!std::isnormal(bins_per_bit)) {
      return from;  // all deviate alike, or some without bounds
    }
    const auto bin_of = [&, first = least.bits](const Deviation& deviation) {
      return static_cast<std::size_t>((deviation.bits - first) * bins_per_bit);
    };
    std::vector<double> masses(kBins);
    for (const Deviation& deviation : from) {
      masses[bin_of(deviation)] += deviation.choice.probability;
    }
    std::size_t cut = 0;
    for (double sum = sum_; cut < kBins && sum + masses[cut] < p_; ++cut) {
      sum += masses[cut];
    }
    std::size_t rest = 0;
    for (const Deviation& deviation : from) {
      if (const std::size_t bin = bin_of(deviation); bin < cut) {
        keep(deviation.choice);
      } else if (bin == cut) {
        from[rest++] = deviation;
      }
    }
    return from.first(rest);
  }
  void keep(const Choice& choice) {
    kept_.push_back(choice);
    sum_ += choice.probability;
  }

  double p_;
  double sum_ = 0.0;
  std::vector<Choice> kept_;
};

// Sorts all choices and adds them up in order.
std::vector<Choice> typical_choices_in_order(const Distribution& distribution, double p) {
  std::vector<Deviation> all =
      deviations(distribution, -1.0, std::numeric_limits<double>::infinity());
  std::ranges::sort(all, more_typical);
  std::vector<Choice> kept;
  double sum = 0.0;
  for (std::size_t i = 0; i < all.size() && sum < p; ++i) {
    kept.push_back(all[i].choice);
    sum += all[i].choice.probability;
  }
  return kept;
}

// Looks among choices near the entropy first, then farther away.
std::vector<Choice> typical_choices(const Distribution& distribution, double p) {
  constexpr double kMostBits = 2048.0;  // beyond the surprise of the smallest double
  TypicalChoices choices(p);
  double beyond = -1.0;
  for (double reach = 0.5; beyond < kMostBits && !choices.enough(); reach *= 2.0) {
    std::vector<Deviation> next = deviations(distribution, beyond, reach);
    choices.take(next);
    if (choices.kept().size() == distribution.size()) {
      break;
    }
    beyond = reach;
    if (choices.kept().size() > distribution.size() / 8) {
      reach = kMostBits;  // few are left for the next passes
    }
  }
  return choices.may_be_wrong() ? typical_choices_in_order(distribution, p) : choices.kept();
}

// The choices whose surprise is at most `most` bits, or the first one if there are none.
std::vector<Choice> choices_within(const Distribution& distribution, double most) {
  std::vector<Choice> kept = distribution.choices(std::exp2(-most));
  std::erase_if(kept, [most](const Choice& c) { return !(surprise(c.probability) <= most); });
  if (kept.empty()) {
    kept = distribution.choices(distribution.largest_probability());
    std::ranges::swap(kept.front(), *std::ranges::min_element(kept, comes_before));
    kept.resize(1);
  }
  return kept;
}

// As many first choices as Zipf's law gives a surprise of `most` bits (equation 31).
std::vector<Choice> choices_by_zipf(const Distribution& distribution, double most) {
  constexpr std::size_t kFitted = 100;
  std::vector<Choice> choices = distribution.choices(0.0);
  const auto at = [&](std::size_t i) {
    return choices.begin() + static_cast<std::ptrdiff_t>(std::min(i, choices.size()));
  };
  std::ranges::nth_element(choices, at(kFitted), comes_before);
  std::sort(choices.begin(), at(kFitted), comes_before);
  const double s = zipf_exponent({choices.begin(), at(kFitted)});
  const double epsilon = s - 1.0;
  const double n = static_cast<double>(choices.size());
  const double k = std::pow(epsilon * std::exp2(most) / (1.0 - std::pow(n, -epsilon)), 1.0 / s);
  const std::size_t count =
      std::isfinite(k) ? static_cast<std::size_t>(std::clamp(k, 1.0, n)) : choices.size();
  if (count > kFitted) {
    std::nth_element(at(kFitted), at(count), choices.end(), comes_before);
  }
  choices.resize(count);
  return choices;
}

}  // namespace

void keep_typical(double p, double temperature, std::span<float> logits) {
  keep_only(typical_choices(Distribution(temperature, logits), p), logits);
}

void exclude_top_choices(double threshold, double temperature, std::span<float> logits) {
  const Distribution distribution(temperature, logits);
  std::vector<Choice> top = distribution.choices(threshold);
  std::erase_if(top, [threshold](const Choice& c) { return !(c.probability >= threshold); });
  const auto last = std::ranges::max_element(top, comes_before);
  for (auto choice = top.begin(); choice != top.end(); ++choice) {
    if (choice != last) {
      logits[choice->token] = kLeftOut;
    }
  }
}

void Mirostat::truncate(double temperature, std::span<float> logits) const {
  const Distribution distribution(temperature, logits);
  if (distribution.size() > 0) {
    keep_only(rule_.version == 2 ? choices_within(distribution, most_)
                                 : choices_by_zipf(distribution, most_),
              logits);
  }
}

void Mirostat::accept(std::size_t token, double temperature, std::span<const float> logits) {
  const Distribution distribution(temperature, logits);
  if (distribution.may_draw(logits[token])) {
    most_ -= rule_.eta * (surprise(distribution.probability(logits[token])) - rule_.tau);
  }
}

}  // namespace winnow::engine
