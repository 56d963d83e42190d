#include "hw/launch/child_descriptors.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// A message begins with what it is: one descriptor, the end of them, or what went wrong.
constexpr char one_descriptor = 'd';
constexpr char end_of_work = 'e';
constexpr char failure = 'f';
constexpr std::size_t longest_message = 1024;

std::runtime_error child_error(std::string_view what, int error) {
    return std::runtime_error(fmt::format("{}: {}", what, std::generic_category().message(error)));
}

struct Message {
    std::array<char, longest_message> text{};
    alignas(::cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    ::iovec part{text.data(), text.size()};
    ::msghdr header{};

    Message() {
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
};

bool send_descriptor(int socket, int descriptor) {
    Message message;
    message.text[0] = one_descriptor;
    message.part.iov_len = 1;
    ::cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
    return ::sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
}

bool send_text(int socket, const std::string& text) {
    return ::send(socket, text.data(), std::min(text.size(), longest_message), MSG_NOSIGNAL) > 0;
}

// The next descriptor; not open at the end. Throws what the child says.
Descriptor receive_descriptor(int socket) {
    Message message;
    ::ssize_t count = -1;
    do {
        count = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) {
        throw std::runtime_error("a child process ended before it was done");
    }
    if (message.text[0] == failure) {
        throw std::runtime_error(
            std::string(message.text.data() + 1, static_cast<std::size_t>(count - 1)));
    }
    if (message.text[0] == end_of_work) {
        return Descriptor();
    }
    const ::cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
    if (attached == nullptr) {  // this process may open no more
        throw std::runtime_error("cannot take over what a child process opened");
    }
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
    return Descriptor(descriptor);
}

// Closes the socket in the end, so that a child that is not heard out does not wait for ever.
std::vector<Descriptor> receive_all(const Descriptor socket) {
    std::vector<Descriptor> descriptors;
    while (true) {
        Descriptor descriptor = receive_descriptor(socket.get());
        if (!descriptor.is_open()) {
            return descriptors;
        }
        descriptors.push_back(std::move(descriptor));
    }
}

// A descriptor of what `work` opens must not take the number of a stream that its programs get.
void open_standard_streams() {
    int descriptor = -1;
    do {
        descriptor = ::open("/dev/null", O_RDWR);
    } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    ::close(descriptor);
}

void work_for(int socket, const std::function<std::vector<Descriptor>()>& work) {
    try {
        for (const Descriptor& descriptor : work()) {
            if (!send_descriptor(socket, descriptor.get())) {
                throw child_error("cannot hand over a descriptor", errno);
            }
        }
        send_text(socket, std::string(1, end_of_work));
    } catch (const std::exception& error) {
        send_text(socket, failure + std::string(error.what()));
    }
}

[[noreturn]] void be_child(::pid_t parent, int socket,
                           const std::function<std::vector<Descriptor>()>& work) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) {        // else it died before we asked to be told
        std::signal(SIGCHLD, SIG_DFL);  // ignored, `work` could not wait for its own children
        open_standard_streams();
        work_for(socket, work);
    }
    ::_exit(EXIT_SUCCESS);
}

// Waits for the child when it goes, whatever there was to hear.
class Reaper {
  public:
    explicit Reaper(::pid_t child) : child_(child) {}
    ~Reaper() {
        while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    Reaper(const Reaper&) = delete;
    Reaper& operator=(const Reaper&) = delete;

  private:
    ::pid_t child_;
};

}  // namespace

std::vector<Descriptor> descriptors_from_child(
    const std::function<std::vector<Descriptor>()>& work) {
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw child_error("cannot open a socket", errno);
    }
    Descriptor here(ends[0]);
    Descriptor there(ends[1]);
    const ::pid_t parent = ::getpid();
    const ::pid_t child = ::fork();
    if (child < 0) {
        throw child_error("cannot start a child process", errno);
    }
    if (child == 0) {
        here.reset();
        be_child(parent, there.get(), work);
    }
    const Reaper reaper(child);
    there.reset();  // or the end of the child would not be the end of its messages
    return receive_all(std::move(here));
}

}  // namespace bucketwise
