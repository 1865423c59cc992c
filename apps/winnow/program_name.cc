#include "apps/winnow/program_name.h"

#include <utility>

namespace winnow::cli {
namespace {

std::string& stored_program_name() {
  static std::string name = "winnow";
  return name;
}

}  // namespace

const std::string& program_name() {
  return stored_program_name();
}

void set_program_name(std::string name) {
  if (!name.empty()) {
    stored_program_name() = std::move(name);
  }
}

}  // namespace winnow::cli
