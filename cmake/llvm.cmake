# LLVM 19, found through llvm-config. Makes two targets:
#   tenon_llvm_headers  the C API's headers
#   tenon_llvm          what to link: the shared library, or with TENON_STATIC the archives of the targets that Tenon
#                       generates code for, with every library under them linked statically too
find_program(LLVM_CONFIG NAMES llvm-config-19 PATHS /usr/lib/llvm-19/bin REQUIRED)

function(llvm_config out)
    execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
        COMMAND_ERROR_IS_FATAL ANY)
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

llvm_config(include_dir --includedir)
llvm_config(lib_dir --libdir)
add_library(tenon_llvm_headers INTERFACE)
target_include_directories(tenon_llvm_headers SYSTEM INTERFACE ${include_dir})

add_library(tenon_llvm INTERFACE)
if(NOT TENON_STATIC)
    find_library(LLVM_SHARED NAMES LLVM-19 HINTS ${lib_dir} REQUIRED)
    target_link_libraries(tenon_llvm INTERFACE ${LLVM_SHARED})
    return()
endif()

llvm_config(archives --link-static --libfiles x86 aarch64 nvptx passes orcjit)
separate_arguments(archives UNIX_COMMAND "${archives}")
# What the archives need in turn. z3 and libxml2 also stand in llvm-config's list: nothing that Tenon calls reaches them.
foreach(name z zstd tinfo)
    find_library(STATIC_${name} NAMES lib${name}.a REQUIRED)
    list(APPEND archives ${STATIC_${name}})
endforeach()
# One string, so that the order survives CMake's removal of duplicates: libstdc++ and libm after what calls them.
list(JOIN archives " " archives)
target_link_options(tenon_llvm INTERFACE -static-libgcc)
target_link_libraries(tenon_llvm INTERFACE
    "-Wl,--start-group ${archives} -Wl,--end-group -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic -lm")
