// A loaded model.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>

#include "bindings.h"
#include "winnow/llm.h"

namespace winnow::python {
namespace {

using namespace nb::literals;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

std::span<const std::int32_t> ids_of(const TokenArray& tokens) {
  return {tokens.data(), tokens.size()};
}

// Lets Ctrl-C end work that runs without Python's lock.
bool check_signals(const Progress& /*progress*/) {
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
  return true;
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> logits(Llm& llm, const TokenArray& tokens) {
  const auto vocab = static_cast<std::size_t>(llm.info().vocab);
  std::vector<float> rows(tokens.size() * vocab);
  {
    const nb::gil_scoped_release unlocked;
    llm.logits(ids_of(tokens), rows, {}, check_signals);
  }
  return to_numpy<float, 2>(std::move(rows), {tokens.size(), vocab});
}

nb::ndarray<nb::numpy, std::int32_t, nb::ndim<3>> live_entries(Llm& llm, const TokenArray& tokens) {
  const auto layers = static_cast<std::size_t>(llm.info().cache_layers);
  const auto heads = static_cast<std::size_t>(llm.info().kv_heads);
  std::vector<std::int32_t> entries(tokens.size() * layers * heads);
  {
    const nb::gil_scoped_release unlocked;
    llm.logits(ids_of(tokens), {}, entries, check_signals);
  }
  return to_numpy<std::int32_t, 3>(std::move(entries), {tokens.size(), layers, heads});
}

std::string render_chat(const Llm& llm,
                        const std::vector<std::pair<std::string, std::string>>& messages) {
  std::vector<ChatMessage> list;
  for (const auto& [role, content] : messages) {
    list.push_back({role, content});
  }
  return llm.render_chat(list);
}

}  // namespace

void bind_llm(nb::module_& module) {
  nb::class_<LoadOptions>(module, "LoadOptions")
      .def(nb::init<>())
      .def_rw("model", &LoadOptions::model)
      .def_rw("context", &LoadOptions::context, nb::arg().none())
      .def_rw("rope_yarn", &LoadOptions::rope_yarn, nb::arg().none())
      .def_rw("probe", &LoadOptions::probe)
      .def_rw("probe_threshold", &LoadOptions::probe_threshold, nb::arg().none())
      .def_rw("cache", &LoadOptions::cache)
      .def_rw("cr", &LoadOptions::cr, nb::arg().none())
      .def_rw("calibration", &LoadOptions::calibration)
      .def_rw("window", &LoadOptions::window, nb::arg().none())
      .def_rw("kv_dtype", &LoadOptions::kv_dtype)
      .def_rw("kv_gib", &LoadOptions::kv_gib)
      .def_rw("host_gib", &LoadOptions::host_gib)
      .def_rw("dtype", &LoadOptions::dtype)
      .def_rw("weights", &LoadOptions::weights)
      .def_rw("device", &LoadOptions::device)
      .def_rw("threads", &LoadOptions::threads)
      .def_rw("chunk", &LoadOptions::chunk)
      .def_rw("deterministic", &LoadOptions::deterministic);

  nb::class_<GenerateOptions>(module, "GenerateOptions")
      .def(nb::init<>())
      .def_rw("max_tokens", &GenerateOptions::max_tokens)
      .def_rw("samples", &GenerateOptions::samples)
      .def_rw("logprobs", &GenerateOptions::logprobs)
      .def_rw("prompt_logprobs", &GenerateOptions::prompt_logprobs)
      .def_rw("stop", &GenerateOptions::stop)
      .def_rw("ignore_eos", &GenerateOptions::ignore_eos)
      .def_rw("sampling", &GenerateOptions::sampling);

  nb::class_<SamplingOptions>(module, "SamplingOptions")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingOptions::temperature)
      .def_rw("top_k", &SamplingOptions::top_k)
      .def_rw("top_p", &SamplingOptions::top_p)
      .def_rw("min_p", &SamplingOptions::min_p)
      .def_rw("repetition_penalty", &SamplingOptions::repetition_penalty)
      .def_rw("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_rw("presence_penalty", &SamplingOptions::presence_penalty)
      .def_rw("seed", &SamplingOptions::seed);

  nb::class_<Llm>(module, "Llm")
      .def_static("load", &Llm::load, "options"_a, Unlocked())
      .def(
          "start",
          [](Llm& llm, const TokenArray& prompt, const GenerateOptions& options) {
            return llm.start(ids_of(prompt), options);
          },
          "prompt"_a, "options"_a)
      .def("logits", &logits, "tokens"_a)
      .def("live_entries", &live_entries, "tokens"_a)
      .def(
          "tokenize",
          [](const Llm& llm, const std::string& text, bool add_special) {
            return llm.tokenize(text, add_special);
          },
          "text"_a, "add_special"_a, Unlocked())
      .def(
          "detokenize",
          [](const Llm& llm, const TokenArray& ids) { return llm.detokenize(ids_of(ids)); },
          "token_ids"_a)
      .def("render_chat", &render_chat, "messages"_a)
      .def_prop_ro("info", &Llm::info)
      .def("cache_memory", &Llm::cache_memory, Unlocked());
}

}  // namespace winnow::python
