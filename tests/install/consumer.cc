// Compiled against the installed headers and library only.
#include <winnow/version.h>

#include <cstdio>

int main() {
  return std::puts("winnow " WINNOW_VERSION) < 0 ? 1 : 0;
}
