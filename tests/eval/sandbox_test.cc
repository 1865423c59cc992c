// Hostile programs must achieve nothing in the sandbox.
#include "eval/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "eval/python.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

class Python : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      python_ = std::make_unique<SandboxedPython>(
          "python3",
          SandboxLimits{
              .seconds = 5.0, .memory_bytes = std::size_t{512} << 20, .output_bytes = 4096});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  [[nodiscard]] std::string why(const std::string& program) const {
    return python_->passes(program).why;
  }
  std::unique_ptr<SandboxedPython> python_;
};

TEST_F(Python, RunsWhatIsHarmless) {
  EXPECT_EQ(why("import math, re, collections, itertools, functools, typing, heapq, random\n"
                "import hashlib, string, datetime, copy, fractions, decimal, json\n"
                "assert hashlib.md5(b'a').hexdigest().startswith('0cc1')\n"
                "assert math.gcd(12, 18) == 6\nprint('x' * 1000000)"),
            "");
  EXPECT_EQ(why("import math\nassert math.gcd(12, 18) == 6"), "");
  EXPECT_EQ(why("import sys\nsys.setrecursionlimit(10000)\n"
                "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nassert f(5000) == 5000"),
            "");
}

TEST_F(Python, TellsWhatFails) {
  EXPECT_THAT(why("assert 1 == 2"), HasSubstr("AssertionError"));
  EXPECT_THAT(why("def f(:"), HasSubstr("SyntaxError"));
  EXPECT_THAT(why("raise ValueError('odd')"), HasSubstr("ValueError: odd"));
}

TEST_F(Python, LeavingEarlyIsNotPassing) {
  EXPECT_EQ(why("import os\nos._exit(0)"), "left before its end");
  EXPECT_EQ(why("import sys\nsys.exit(0)"), "left before its end");
  EXPECT_EQ(why("print('passed')\nquit = exit = None\nraise SystemExit"), "left before its end");
}

TEST_F(Python, EndlessProgramsEnd) {
  const SandboxedPython hurried("python3", {.seconds = 1.0});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(hurried.passes("while True: pass").why, "timed out");
  EXPECT_EQ(hurried.passes("import time\ntime.sleep(1000)").why, "timed out");
  EXPECT_EQ(hurried.passes("while True: print('y' * 10000)").why, "timed out");
  EXPECT_EQ(hurried.passes("import sys, os, time\nos.close(1)\nos.close(2)\ntime.sleep(1000)").why,
            "timed out");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(Python, MemoryIsBounded) {
  EXPECT_THAT(why("x = bytearray(10 ** 10)"), HasSubstr("MemoryError"));
  EXPECT_THAT(why("x = []\nwhile True: x.append(bytearray(10 ** 7))"), HasSubstr("MemoryError"));
}

TEST_F(Python, MakesNoProcessesAndNoThreads) {
  for (const char* program :
       {"import os\nos.fork()", "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import threading\nthreading.Thread(target=print).start()",
        "import os\nassert os.system('true') == 0"}) {
    EXPECT_THAT(why(program), HasSubstr("exit code 1")) << program;
  }
}

TEST_F(Python, ChangesNoFiles) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "winnow-sandbox-test";
  std::filesystem::create_directories(directory);
  const auto file = directory / "precious";
  std::ofstream(file) << "as it was";
  for (const char* attack :
       {"open(F, 'w')", "open(F, 'a')", "open(F, 'r+')", "open(D + '/new', 'x')", "os.remove(F)",
        "os.rename(F, F + '2')", "os.truncate(F, 0)", "os.chmod(F, 0)", "os.utime(F, (1, 1))",
        "os.mkdir(D + '/sub')", "os.rmdir(D)", "os.symlink(F, D + '/link')",
        "os.link(F, D + '/hard')", "os.mkfifo(D + '/fifo')", "os.open(D, os.O_TMPFILE | os.O_RDWR)",
        "os.setxattr(F, 'user.x', b'1')", "os.chdir(D)", "os.memfd_create('x')"}) {
    EXPECT_THAT(why(fmt::format("import os\nF = '{}'\nD = '{}'\n{}", file.string(),
                                directory.string(), attack)),
                HasSubstr("PermissionError"))
        << attack;
  }
  std::ifstream stream(file);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(content, "as it was");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1);
  std::filesystem::remove_all(directory);
}

TEST_F(Python, OpensNoSockets) {
  for (const char* program :
       {"import socket\nsocket.socket()", "import socket\nsocket.socketpair()",
        "import socket\nsocket.create_connection(('127.0.0.1', 80), 1)",
        "import socket\nsocket.socket(socket.AF_UNIX)"}) {
    EXPECT_THAT(why(program), HasSubstr("exit code 1")) << program;
  }
}

TEST_F(Python, LeavesOthersAlone) {
  for (const char* attack : {"os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.killpg(0, 9)",
                             "os.nice(5)", "os.setuid(0)", "os.chroot('/')", "os.setsid()",
                             "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
                             "import signal; signal.setitimer(signal.ITIMER_REAL, 1)"}) {
    EXPECT_THAT(why(fmt::format("import os\n{}", attack)), HasSubstr("exit code 1")) << attack;
  }
  // System calls by number, not through Python: ptrace, process_vm_readv, io_uring_setup, bpf.
  EXPECT_THAT(why("import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                  "for call in (101, 310, 425, 321):\n"
                  "  assert libc.syscall(call, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == "
                  "1, call\n"),
              ::testing::AnyOf("", HasSubstr("ImportError"), HasSubstr("ModuleNotFoundError")));
}

TEST(Sandbox, GivesInputAndTakesOutput) {
  try {
    const SandboxResult result = run_sandboxed({"/bin/cat"}, std::string(200000, 'x'),
                                               {.seconds = 10.0, .output_bytes = 1000});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, std::string(1000, 'x'));
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(Sandbox, SaysWhatItCannotStart) {
  EXPECT_THROW(run_sandboxed({"/absent/program"}, ""), Error);
  EXPECT_THROW(SandboxedPython("absent-python"), Error);
}

}  // namespace
}  // namespace winnow::eval
