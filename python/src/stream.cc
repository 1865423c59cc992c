// A request under way.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "winnow/llm.h"

namespace winnow::python {

void bind_stream(nb::module_& module) {
  nb::class_<Piece>(module, "Piece")
      .def_ro("sample", &Piece::sample)
      .def_ro("token", &Piece::token)
      .def_ro("text", &Piece::text);

  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Stream>(module, "Stream")
      .def("advance", &Stream::advance, Unlocked())
      .def("take", &Stream::take)
      .def("cancel", &Stream::cancel)
      .def("finish", &Stream::finish);
}

}  // namespace winnow::python
