# Writes OUT, a C file with the texts of TEXTS, one after the other, as NAME and NAME_size.
#   cmake -DNAME=… -DOUT=… "-DTEXTS=a;b" -P embed.cmake
set(bytes "")
foreach(input ${TEXTS})
    file(READ ${input} hex HEX)
    string(APPEND bytes "${hex}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,){32})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include <stddef.h>\nextern const char ${NAME}[];\nextern const size_t ${NAME}_size;\n"
     "const char ${NAME}[] = {\n${bytes}0};\nconst size_t ${NAME}_size = sizeof ${NAME} - 1;\n")
