// The extension module winnow._winnow.
#include <stdexcept>

#include "bindings.h"

NB_MODULE(_winnow, module) {
  // What a user can mend is thrown as std::runtime_error (winnow/llm.h).
  const nanobind::exception<std::runtime_error> error(module, "Error", PyExc_RuntimeError);
  winnow::python::bind_results(module);
  winnow::python::bind_stream(module);
  winnow::python::bind_llm(module);
}
