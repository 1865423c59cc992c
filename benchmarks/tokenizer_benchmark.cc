// The time to tokenise a prompt: the beginning of a text, the same each time, then a different
// question; one thread. Uses the demo's model and text from the directory of the clone.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <string>

#include "checkpoint/json.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

constexpr std::size_t kBytes = 11200;

void tokenize(benchmark::State& state) {
  const auto tokenizer = load_tokenizer("assets/dms-cr8");
  const std::string shared = read_text_file("assets/demo_prompt.txt").substr(0, kBytes);
  std::size_t question = 0;
  std::size_t tokens = 0;
  while (state.KeepRunning()) {
    question += 7;
    const std::string text = shared + "\nQuestion " + std::to_string(question) + ": Where?";
    tokens = tokenizer->encode(text).size();
  }
  state.counters["tokens"] = static_cast<double>(tokens);
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("a shared beginning and a question", winnow::tokenize)
      ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
